import { given, oneOfParam, textParam } from '../../app/searchParams'
import { RANK_STATES, type RankState } from '../checkpoint/search'

export interface SavesSearch {
  project?: string | undefined
  cursor?: string | undefined
  /** The checkpoint whose ranks are shown. */
  save?: string | undefined
  /** Where its list of ranks is. */
  ranks?: string | undefined
  rank_state?: RankState | undefined
}

export function savesSearch(raw: Record<string, unknown>): SavesSearch {
  return given({
    project: textParam(raw.project),
    cursor: textParam(raw.cursor),
    save: textParam(raw.save),
    ranks: textParam(raw.ranks),
    rank_state: oneOfParam(raw.rank_state, RANK_STATES),
  })
}
