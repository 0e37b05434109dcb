import { createRoute } from '@tanstack/react-router'
import { shellRoute } from '../../app/parent'
import { RetentionPage } from './RetentionPage'
import { retentionSearch } from './search'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/retention/$project',
  validateSearch: retentionSearch,
  component: RetentionPage,
})
