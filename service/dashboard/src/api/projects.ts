import { queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'

const MOST = 200

export const PROJECTS_KEY = ['projects'] as const

/** The first projects by name, to choose one from: a filter offers no more than a page of them. */
export const projectChoicesQuery = queryOptions({
  queryKey: [...PROJECTS_KEY, 'choices'],
  queryFn: ({ signal }) => answer(api.GET('/v1/projects', { params: { query: { limit: MOST } }, signal })),
  staleTime: 60_000,
})
