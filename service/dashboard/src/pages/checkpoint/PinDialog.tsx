import { useState, type ReactNode } from 'react'
import { CHECKPOINTS_KEY, pinCheckpoint } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { RUNS_KEY } from '../../api/runs'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'

export interface ActionDialogProps {
  checkpoint: Message<'CheckpointInfo'>
  onClose: () => void
}

/** What a change of a checkpoint makes out of date. */
export const CHANGED = [CHECKPOINTS_KEY, RUNS_KEY] as const

export function PinDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const [reason, setReason] = useState('')
  const pin = useAction(() => pinCheckpoint(checkpoint, reason), { done: 'Pinned.', invalidates: CHANGED })
  return (
    <ConfirmDialog
      title={`Pin step ${checkpoint.step.toLocaleString('en')}`}
      confirmLabel="Pin"
      kind="primary"
      onConfirm={() => pin.run()}
      onClose={onClose}
    >
      <p>A pinned checkpoint is kept whatever retention says, and cannot be deleted until it is unpinned.</p>
      <TextField label="Reason" value={reason} onChange={setReason} placeholder="published with the paper" />
    </ConfirmDialog>
  )
}
