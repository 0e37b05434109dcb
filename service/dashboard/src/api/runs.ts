import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api, ifMatch, type Message } from './client'
import { everyOnFirstPage } from './polling'
import type { paths } from './schema'

export type RunsFilter = NonNullable<paths['/v1/runs']['get']['parameters']['query']>

/** The first part of the keys of everything about runs: invalidating it asks for all of it anew. */
export const RUNS_KEY = ['runs'] as const
const POLL_MILLISECONDS = 10_000

export function runsQuery(filter: RunsFilter) {
  return queryOptions({
    queryKey: [...RUNS_KEY, 'all', filter],
    queryFn: ({ signal }) => answer(api.GET('/v1/runs', { params: { query: filter }, signal })),
    placeholderData: keepPreviousData,
  })
}

/** The same for a list that somebody looks at: its first page is asked for again and again. */
export function liveRunsQuery(filter: RunsFilter) {
  return { ...runsQuery(filter), refetchInterval: everyOnFirstPage(filter.cursor, POLL_MILLISECONDS) }
}

/** Deletes a run as it was seen; `force` also while it is saving or has pinned checkpoints. */
export function deleteRun(
  run: Pick<Message<'RunSummary'>, 'id' | 'version'>,
  { force }: { force: boolean },
): Promise<Message<'RunInfo'>> {
  const params = { path: { run: run.id }, query: { force }, header: ifMatch(run.version) }
  return answer(api.DELETE('/v1/runs-by-id/{run}', { params }))
}

/** Restores a deleted run; under another `name`, where there is one. */
export function restoreRun(
  run: Pick<Message<'RunSummary'>, 'id' | 'version'>,
  name: string | null,
): Promise<Message<'RunInfo'>> {
  const params = { path: { run: run.id }, header: ifMatch(run.version) }
  return answer(api.POST('/v1/runs-by-id/{run}/restore', { params, body: { name } }))
}
