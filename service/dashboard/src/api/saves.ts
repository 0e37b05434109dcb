import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api, type Message } from './client'
import { every } from './polling'
import { withSample, type Sample } from './saveRates'

export interface SavesFilter {
  project?: string
  limit: number
  cursor?: string
}

/** One answer, with what earlier ones saw of the same saves. */
export interface SavesSeen {
  page: Message<'Page_SaveInProgress_'>
  samples: Record<string, Sample[]>
}

export const SAVES_KEY = ['saves'] as const
const POLL_MILLISECONDS = 3_000

/** The saves in progress, asked for again and again while the page is in sight. */
export function savesQuery(filter: SavesFilter) {
  return queryOptions({
    queryKey: [...SAVES_KEY, filter],
    queryFn: async ({ client, queryKey, signal }): Promise<SavesSeen> => {
      const page = await answer(api.GET('/v1/saves', { params: { query: filter }, signal }))
      return withPage(client.getQueryData<SavesSeen>(queryKey)?.samples ?? {}, page)
    },
    placeholderData: keepPreviousData,
    staleTime: 0,
    refetchInterval: every(POLL_MILLISECONDS),
  })
}

function withPage(before: Record<string, Sample[]>, page: Message<'Page_SaveInProgress_'>): SavesSeen {
  const samples: Record<string, Sample[]> = {}
  for (const save of page.items) {
    const sample = { at: Date.parse(save.now) / 1000, offered: save.offered_bytes, present: save.present_bytes }
    samples[save.checkpoint.id] = withSample(before[save.checkpoint.id] ?? [], sample)
  }
  return { page, samples }
}
