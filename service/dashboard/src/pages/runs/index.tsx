import { createRoute } from '@tanstack/react-router'
import { shellRoute } from '../../app/parent'
import { RunsPage } from './RunsPage'
import { readSearch } from './search'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/runs',
  validateSearch: readSearch,
  component: RunsPage,
})
