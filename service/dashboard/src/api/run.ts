import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api, type Message } from './client'
import { RUNS_KEY } from './runs'
import type { paths } from './schema'

/** A run by its two names. */
export interface RunName {
  project: string
  run: string
}

export type CheckpointsFilter = NonNullable<
  paths['/v1/projects/{project}/runs/{run}/checkpoints']['get']['parameters']['query']
>

const POLL_MILLISECONDS = 10_000
const BUSY_POLL_MILLISECONDS = 2_000

/** The beginning of the keys of everything about one run. */
export function runKey({ project, run }: RunName) {
  return [...RUNS_KEY, 'one', project, run] as const
}

export function runQuery(name: RunName) {
  return queryOptions({
    queryKey: [...runKey(name), 'run'],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/projects/{project}/runs/{run}', { params: { path: { ...name } }, signal })),
    refetchInterval: POLL_MILLISECONDS,
  })
}

export function latestQuery(name: RunName) {
  return queryOptions({
    queryKey: [...runKey(name), 'latest'],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/projects/{project}/runs/{run}/latest', { params: { path: { ...name } }, signal })),
  })
}

export function attemptsQuery(name: RunName, query: { limit: number; cursor?: string }) {
  return queryOptions({
    queryKey: [...runKey(name), 'attempts', query],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/projects/{project}/runs/{run}/attempts', { params: { path: { ...name }, query }, signal })),
    placeholderData: keepPreviousData,
  })
}

export function runCheckpointsQuery(name: RunName, query: CheckpointsFilter) {
  return queryOptions({
    queryKey: [...runKey(name), 'checkpoints', query],
    queryFn: ({ signal }) =>
      answer(
        api.GET('/v1/projects/{project}/runs/{run}/checkpoints', { params: { path: { ...name }, query }, signal }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MILLISECONDS,
  })
}

export function saveTimesQuery(name: RunName, query: { limit: number; cursor?: string }) {
  return queryOptions({
    queryKey: [...runKey(name), 'save-times', query],
    queryFn: ({ signal }) =>
      answer(
        api.GET('/v1/projects/{project}/runs/{run}/save-times', { params: { path: { ...name }, query }, signal }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MILLISECONDS,
  })
}

/** Asks more often while a request waits or its checkpoint is being saved. */
export function saveRequestQuery(name: RunName) {
  return queryOptions({
    queryKey: [...runKey(name), 'save-request'],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/projects/{project}/runs/{run}/save-request', { params: { path: { ...name } }, signal })),
    refetchInterval: ({ state }) => (isUnderWay(state.data) ? BUSY_POLL_MILLISECONDS : POLL_MILLISECONDS),
  })
}

export function requestSave(name: RunName): Promise<Message<'SaveRequestInfo'>> {
  return answer(api.POST('/v1/projects/{project}/runs/{run}/save-request', { params: { path: { ...name } } }))
}

function isUnderWay(request: Message<'SaveRequestInfo'> | undefined): boolean {
  return request?.state === 'waiting' || request?.state === 'saving'
}
