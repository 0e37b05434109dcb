import { queryOptions } from '@tanstack/react-query'
import { answer, api, type Message } from './client'
import { whileSameSubject } from './placeholder'
import { every, everyAs, everyOnFirstPage } from './polling'
import { Problem } from './problem'
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

type SaveRequest = Message<'SaveRequestInfo'>

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
    refetchInterval: every(POLL_MILLISECONDS),
  })
}

export function latestQuery(name: RunName) {
  return queryOptions({
    queryKey: [...runKey(name), 'latest'],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/projects/{project}/runs/{run}/latest', { params: { path: { ...name } }, signal })),
    refetchInterval: every(POLL_MILLISECONDS),
  })
}

export function attemptsQuery(name: RunName, query: { limit: number; cursor?: string }) {
  const queryKey = [...runKey(name), 'attempts', query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/projects/{project}/runs/{run}/attempts', { params: { path: { ...name }, query }, signal })),
    placeholderData: whileSameSubject(queryKey),
    refetchInterval: everyOnFirstPage(query.cursor, POLL_MILLISECONDS),
  })
}

export function runCheckpointsQuery(name: RunName, query: CheckpointsFilter) {
  const queryKey = [...runKey(name), 'checkpoints', query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(
        api.GET('/v1/projects/{project}/runs/{run}/checkpoints', { params: { path: { ...name }, query }, signal }),
      ),
    placeholderData: whileSameSubject(queryKey),
    refetchInterval: everyOnFirstPage(query.cursor, POLL_MILLISECONDS),
  })
}

export function saveTimesQuery(name: RunName, query: { limit: number; cursor?: string }) {
  const queryKey = [...runKey(name), 'save-times', query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(
        api.GET('/v1/projects/{project}/runs/{run}/save-times', { params: { path: { ...name }, query }, signal }),
      ),
    placeholderData: whileSameSubject(queryKey),
    refetchInterval: everyOnFirstPage(query.cursor, POLL_MILLISECONDS),
  })
}

/** Asks more often while a request waits or its checkpoint is being saved. */
export function saveRequestQuery(name: RunName) {
  return queryOptions({
    queryKey: [...runKey(name), 'save-request'],
    queryFn: ({ signal }) => getSaveRequest(name, signal),
    refetchInterval: everyAs<SaveRequest>((request) => (isUnderWay(request) ? BUSY_POLL_MILLISECONDS : POLL_MILLISECONDS)),
  })
}

/** What a request to save came upon, and what it is now. */
export interface AskedToSave {
  before: SaveRequest
  after: SaveRequest
}

/**
 * Asks for the request that waits, or for the one that follows it, by its number: whatever repeats this request on its way
 * asks for no second save. A number counted for an attempt that a newer one has fenced is counted anew, once.
 */
export async function requestSave(name: RunName): Promise<AskedToSave> {
  try {
    return await requestNext(name)
  } catch (error) {
    if (error instanceof Problem && error.code === 'attempt_fenced') return await requestNext(name)
    throw error
  }
}

async function requestNext(name: RunName): Promise<AskedToSave> {
  const before = await getSaveRequest(name)
  const number = before.state === 'waiting' ? before.number : before.number + 1
  const params = { path: { ...name }, query: { number } }
  return { before, after: await answer(api.POST('/v1/projects/{project}/runs/{run}/save-request', { params })) }
}

function getSaveRequest(name: RunName, signal?: AbortSignal): Promise<SaveRequest> {
  const options = signal === undefined ? {} : { signal }
  return answer(
    api.GET('/v1/projects/{project}/runs/{run}/save-request', { params: { path: { ...name } }, ...options }),
  )
}

function isUnderWay(request: SaveRequest | undefined): boolean {
  return request?.state === 'waiting' || request?.state === 'saving'
}
