import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'
import type { paths } from './schema'

export type FindingsFilter = NonNullable<paths['/v1/integrity/findings']['get']['parameters']['query']>

export function findingsQuery(filter: FindingsFilter) {
  return queryOptions({
    queryKey: ['integrity', 'findings', filter],
    queryFn: ({ signal }) => answer(api.GET('/v1/integrity/findings', { params: { query: filter }, signal })),
    placeholderData: keepPreviousData,
  })
}
