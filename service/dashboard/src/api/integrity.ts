import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'
import { every, everyOnFirstPage } from './polling'
import type { paths } from './schema'

const POLL_MILLISECONDS = 30_000

export type FindingsFilter = NonNullable<paths['/v1/integrity/findings']['get']['parameters']['query']>

/** How much of what is stored was looked at lately: of all that the token sees, or of one project. */
export function integrityQuery(project?: string) {
  const query = project === undefined ? {} : { project }
  return queryOptions({
    queryKey: ['integrity', 'coverage', query],
    queryFn: ({ signal }) => answer(api.GET('/v1/integrity', { params: { query }, signal })),
    refetchInterval: every(POLL_MILLISECONDS),
  })
}

export function findingsQuery(filter: FindingsFilter) {
  return queryOptions({
    queryKey: ['integrity', 'findings', filter],
    queryFn: ({ signal }) => answer(api.GET('/v1/integrity/findings', { params: { query: filter }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: everyOnFirstPage(filter.cursor, POLL_MILLISECONDS),
  })
}
