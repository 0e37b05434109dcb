import { given, oneOfParam, textParam } from '../../app/searchParams'

export const VIEWS = ['summary', 'ranks', 'tensors', 'values', 'damage', 'resume'] as const
export type CheckpointView = (typeof VIEWS)[number]
export const RANK_STATES = ['absent', 'sending', 'arrived'] as const
export type RankState = (typeof RANK_STATES)[number]
export const VALUE_KINDS = ['random', 'position', 'value'] as const
export type ValueKind = (typeof VALUE_KINDS)[number]

/** Everything the page shows that can be chosen, as the address bar has it. */
export interface CheckpointSearch {
  view?: CheckpointView | undefined
  /** Of the list that the view shows. */
  cursor?: string | undefined
  search?: string | undefined
  rank_state?: RankState | undefined
  kind?: ValueKind | undefined
  /** The tensor whose slices are shown. */
  tensor?: string | undefined
  /** Where its list of slices is. */
  slices?: string | undefined
}

export function checkpointSearch(raw: Record<string, unknown>): CheckpointSearch {
  return given({
    view: oneOfParam(raw.view, VIEWS),
    cursor: textParam(raw.cursor),
    search: textParam(raw.search),
    rank_state: oneOfParam(raw.rank_state, RANK_STATES),
    kind: oneOfParam(raw.kind, VALUE_KINDS),
    tensor: textParam(raw.tensor),
    slices: textParam(raw.slices),
  })
}
