import { queryOptions } from '@tanstack/react-query'
import { answer, api, ifMatch, type Message } from './client'
import { whileSameSubject } from './placeholder'
import { every, everyAs } from './polling'
import type { paths } from './schema'

type Checkpoint = Message<'CheckpointInfo'>
/** What a change needs to know: which checkpoint, and the version that was looked at. */
export type Seen = Pick<Checkpoint, 'id' | 'version'>

type Query<Path extends keyof paths> = paths[Path] extends { get: { parameters: { query?: infer Asked } } }
  ? NonNullable<Asked>
  : never

/** The first part of the keys of everything about checkpoints. */
export const CHECKPOINTS_KEY = ['checkpoints'] as const
const BUSY_POLL_MILLISECONDS = 3_000

export function checkpointKey(checkpoint: string) {
  return [...CHECKPOINTS_KEY, checkpoint] as const
}

/** One checkpoint; asked for again while it is still being saved. */
export function checkpointQuery(checkpoint: string) {
  return queryOptions({
    queryKey: [...checkpointKey(checkpoint), 'info'],
    queryFn: ({ signal }) => answer(api.GET('/v1/checkpoints/{checkpoint}', { params: { path: { checkpoint } }, signal })),
    refetchInterval: everyAs<Checkpoint>((checkpoint) => (isUnfinished(checkpoint) ? BUSY_POLL_MILLISECONDS : false)),
  })
}

export function ranksQuery(checkpoint: string, query: Query<'/v1/checkpoints/{checkpoint}/ranks'>, poll = false) {
  const queryKey = [...checkpointKey(checkpoint), 'ranks', query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/checkpoints/{checkpoint}/ranks', { params: { path: { checkpoint }, query }, signal })),
    placeholderData: whileSameSubject(queryKey),
    refetchInterval: poll && every(BUSY_POLL_MILLISECONDS),
  })
}

export function tensorsQuery(checkpoint: string, query: Query<'/v1/checkpoints/{checkpoint}/tensors'>) {
  const queryKey = [...checkpointKey(checkpoint), 'tensors', query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/checkpoints/{checkpoint}/tensors', { params: { path: { checkpoint }, query }, signal })),
    placeholderData: whileSameSubject(queryKey),
  })
}

export function slicesQuery(checkpoint: string, query: { tensor: string; limit: number; cursor?: string }) {
  return queryOptions({
    queryKey: [...checkpointKey(checkpoint), 'slices', query],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/checkpoints/{checkpoint}/slices', { params: { path: { checkpoint }, query }, signal })),
  })
}

export function valuesQuery(checkpoint: string, query: Query<'/v1/checkpoints/{checkpoint}/values'>) {
  const queryKey = [...checkpointKey(checkpoint), 'values', query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/checkpoints/{checkpoint}/values', { params: { path: { checkpoint }, query }, signal })),
    placeholderData: whileSameSubject(queryKey),
  })
}

export function differenceQuery(
  checkpoint: string,
  other: string,
  query: Query<'/v1/checkpoints/{checkpoint}/differences/{other}'>,
) {
  const queryKey = [...checkpointKey(checkpoint), 'differences', other, query]
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      answer(
        api.GET('/v1/checkpoints/{checkpoint}/differences/{other}', {
          params: { path: { checkpoint, other }, query },
          signal,
        }),
      ),
    placeholderData: whileSameSubject(queryKey),
  })
}

/** What deleting it would mean now: never an old answer. */
export function impactQuery(checkpoint: string) {
  return queryOptions({
    queryKey: [...checkpointKey(checkpoint), 'impact'],
    queryFn: ({ signal }) =>
      answer(api.GET('/v1/checkpoints/{checkpoint}/impact', { params: { path: { checkpoint } }, signal })),
    staleTime: 0,
    gcTime: 0,
  })
}

export function pinCheckpoint({ id, version }: Seen, reason: string): Promise<Checkpoint> {
  const params = { path: { checkpoint: id }, header: ifMatch(version) }
  return answer(api.PUT('/v1/checkpoints/{checkpoint}/pin', { params, body: { reason } }))
}

export function unpinCheckpoint({ id, version }: Seen): Promise<Checkpoint> {
  const params = { path: { checkpoint: id }, header: ifMatch(version) }
  return answer(api.DELETE('/v1/checkpoints/{checkpoint}/pin', { params }))
}

export function deleteCheckpoint({ id, version }: Seen): Promise<Checkpoint> {
  const params = { path: { checkpoint: id }, header: ifMatch(version) }
  return answer(api.DELETE('/v1/checkpoints/{checkpoint}', { params }))
}

export function restoreCheckpoint({ id, version }: Seen): Promise<Checkpoint> {
  const params = { path: { checkpoint: id }, header: ifMatch(version) }
  return answer(api.POST('/v1/checkpoints/{checkpoint}/restore', { params }))
}

export function acceptCheckpoint({ id, version }: Seen): Promise<Checkpoint> {
  const params = { path: { checkpoint: id }, header: ifMatch(version) }
  return answer(api.POST('/v1/checkpoints/{checkpoint}/accept', { params }))
}

export function setTag(checkpoint: string, tag: string, only: boolean): Promise<Checkpoint> {
  const params = { path: { checkpoint, tag }, query: { only } }
  return answer(api.PUT('/v1/checkpoints/{checkpoint}/tags/{tag}', { params }))
}

export function removeTag(checkpoint: string, tag: string): Promise<Checkpoint> {
  return answer(api.DELETE('/v1/checkpoints/{checkpoint}/tags/{tag}', { params: { path: { checkpoint, tag } } }))
}

export function abortCheckpoint(checkpoint: string, reason: string): Promise<Message<'StateAnswer'>> {
  const params = { path: { checkpoint } }
  return answer(api.POST('/v1/checkpoints/{checkpoint}/abort', { params, body: { reason } }))
}

/** Where a rank's manifest can be downloaded: a link, which the browser's cookie opens. */
export function manifestHref(checkpoint: string, rank: number): string {
  return `/v1/checkpoints/${encodeURIComponent(checkpoint)}/manifests/${rank}`
}

export function isUnfinished(checkpoint: Pick<Checkpoint, 'state'> | undefined): boolean {
  return checkpoint?.state === 'open' || checkpoint?.state === 'validating'
}
