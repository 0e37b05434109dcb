import { flagParam, given, oneOfParam, textParam } from '../../app/searchParams'
import type { CheckpointsFilter } from '../../api/run'
import { STATES, type CheckpointState } from '../../charts/marks'
import type { Band } from '../../charts/rankTimes'

const OTHER_VIEWS = ['times', 'attempts', 'resume'] as const
export type RunView = 'checkpoints' | (typeof OTHER_VIEWS)[number]

const RANKS = /^(\d{1,7})-(\d{1,7})$/
const PAGE = 50

/** Everything the page shows that can be chosen, as the address bar has it. */
export interface RunSearch {
  view?: (typeof OTHER_VIEWS)[number] | undefined
  state?: CheckpointState | undefined
  step_min?: number | undefined
  step_max?: number | undefined
  pinned?: true | undefined
  tag?: string | undefined
  /** An attempt's id. */
  attempt?: string | undefined
  on_line?: true | undefined
  /** Of the list. */
  cursor?: string | undefined
  /** Of the timeline, which goes back in pages of its own. */
  older?: string | undefined
  /** Of the saves whose times are shown. */
  saves?: string | undefined
  /** Of the attempts. */
  attempts?: string | undefined
  /** The ranks of the heat map: `16-31`. */
  ranks?: string | undefined
}

export function runSearch(raw: Record<string, unknown>): RunSearch {
  return given({
    view: oneOfParam(raw.view, OTHER_VIEWS),
    state: oneOfParam(raw.state, STATES),
    step_min: stepParam(raw.step_min),
    step_max: stepParam(raw.step_max),
    pinned: flagParam(raw.pinned),
    tag: textParam(raw.tag),
    attempt: textParam(raw.attempt),
    on_line: flagParam(raw.on_line),
    cursor: textParam(raw.cursor),
    older: textParam(raw.older),
    saves: textParam(raw.saves),
    attempts: textParam(raw.attempts),
    ranks: bandOf(textParam(raw.ranks)) && textParam(raw.ranks),
  })
}

/** The list's filter and page. */
export function listFilter(search: RunSearch): CheckpointsFilter {
  const { state, step_min, step_max, pinned, tag, attempt, on_line, cursor } = search
  return { ...given({ state, step_min, step_max, pinned, tag, attempt, on_line, cursor }), limit: PAGE }
}

/** Whether the list leaves anything out. */
export function isFiltered(search: RunSearch): boolean {
  return Object.keys(listFilter({ ...search, cursor: undefined })).length > 1
}

/** A step as it is written in a field or an address; undefined where it is none. */
export function stepParam(raw: unknown): number | undefined {
  const text = textParam(raw)
  if (text === undefined || !/^\d{1,15}$/.test(text)) return undefined
  return Number(text)
}

/** Ranks as the address has them; undefined where these are none. */
export function bandOf(text: string | undefined): Band | undefined {
  const found = RANKS.exec(text ?? '')
  const [first, last] = [Number(found?.[1]), Number(found?.[2])]
  return first <= last ? { first, last } : undefined
}
