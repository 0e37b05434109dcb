import { createRoute } from '@tanstack/react-router'
import { shellRoute } from '../../app/parent'
import { OverviewPage } from './OverviewPage'
import { readSearch } from './search'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  validateSearch: readSearch,
  component: OverviewPage,
})
