import type { Message } from '../../api/client'

/** What every dialog about a checkpoint gets. */
export interface ActionDialogProps {
  checkpoint: Message<'CheckpointInfo'>
  onClose: () => void
}
