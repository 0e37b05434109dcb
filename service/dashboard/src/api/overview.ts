import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'

const REFRESH_MILLISECONDS = 30_000

export function overviewQuery(windowHours: number, project?: string) {
  const query = { window_hours: windowHours, ...(project === undefined ? {} : { project }) }
  return queryOptions({
    queryKey: ['overview', query],
    queryFn: ({ signal }) => answer(api.GET('/v1/overview', { params: { query }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MILLISECONDS,
  })
}

export const integrityQuery = queryOptions({
  queryKey: ['integrity', 'coverage'],
  queryFn: ({ signal }) => answer(api.GET('/v1/integrity', { signal })),
  refetchInterval: REFRESH_MILLISECONDS,
})
