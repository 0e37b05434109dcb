import type { ReactNode } from 'react'
import { Empty } from '../components/Empty'
import { LinkButton } from '../components/LinkButton'
import { Page } from '../components/Page'

export function NoSuchPage(): ReactNode {
  return (
    <Page title="No such page">
      <Empty title="Nothing lives at this address">
        <LinkButton to="/">Go to the overview</LinkButton>
      </Empty>
    </Page>
  )
}
