import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'
import type { paths } from './schema'

export type ProjectsFilter = NonNullable<paths['/v1/projects']['get']['parameters']['query']>

export const PROJECTS_KEY = ['projects'] as const

export function projectsQuery(filter: ProjectsFilter) {
  return queryOptions({
    queryKey: [...PROJECTS_KEY, 'list', filter],
    queryFn: ({ signal }) => answer(api.GET('/v1/projects', { params: { query: filter }, signal })),
    placeholderData: keepPreviousData,
  })
}

/** So many names are enough to choose from: who wants another types more of it. */
const OFFERED = 20

/** The first projects whose name contains a text, to choose one from. */
export function projectChoicesQuery(search: string) {
  return queryOptions({ ...projectsQuery({ search, limit: OFFERED }), staleTime: 60_000 })
}
