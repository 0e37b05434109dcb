import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'
import type { paths } from './schema'

export type AuditQuery = NonNullable<paths['/v1/audit']['get']['parameters']['query']>

export function auditQuery(query: AuditQuery) {
  return queryOptions({
    queryKey: ['audit', query],
    queryFn: ({ signal }) => answer(api.GET('/v1/audit', { params: { query }, signal })),
    placeholderData: keepPreviousData,
  })
}
