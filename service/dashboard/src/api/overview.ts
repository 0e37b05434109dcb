import { queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'
import { whileSameSubject } from './placeholder'
import { every } from './polling'

const POLL_MILLISECONDS = 30_000

export function overviewQuery(windowHours: number, project?: string) {
  const query = { window_hours: windowHours, ...(project === undefined ? {} : { project }) }
  const queryKey = ['overview', project ?? null, windowHours] as const
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) => answer(api.GET('/v1/overview', { params: { query }, signal })),
    placeholderData: whileSameSubject(queryKey),
    refetchInterval: every(POLL_MILLISECONDS),
  })
}
