import { useState, type ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import { pinCheckpoint } from '../../api/checkpoints'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { count } from '../../format/numbers'
import type { ActionDialogProps } from './actionDialog'

export function PinDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const [reason, setReason] = useState('')
  const pin = useAction(() => pinCheckpoint(checkpoint, reason), { done: 'Pinned.', invalidates: CHECKPOINT_CHANGED })
  return (
    <ConfirmDialog
      title={`Pin step ${count(checkpoint.step)}`}
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
