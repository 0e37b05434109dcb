import type { Message } from '../../api/client'
import type { CheckpointSearch } from './search'

/** What every tab of the page gets. */
export interface ViewProps {
  checkpoint: Message<'CheckpointInfo'>
  search: CheckpointSearch
  /** Changes the address; what is not named stays. */
  onChange: (changes: Partial<CheckpointSearch>) => void
}
