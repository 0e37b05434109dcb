import type { Message } from '../../api/client'
import type { RunName } from '../../api/run'
import type { RunSearch } from './search'

/** As many as the API gives at once. */
export const TIMELINE_PAGE = 200

/** What every tab of the page gets. */
export interface ViewProps {
  name: RunName
  run: Message<'RunInfo'>
  search: RunSearch
  /** Changes the address; what is not named stays. */
  onChange: (changes: Partial<RunSearch>) => void
}

/** The page of checkpoints that the timeline and the chart of sizes show. */
export function timelineFilter(search: RunSearch): { limit: number; cursor?: string } {
  return { limit: TIMELINE_PAGE, ...(search.older === undefined ? {} : { cursor: search.older }) }
}
