import { createRoute } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { shellRoute } from '../../app/parent'
import { Page } from '../../components/Page'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/saves',
  component: Placeholder,
})

function Placeholder(): ReactNode {
  return <Page title="Saves in progress">{null}</Page>
}
