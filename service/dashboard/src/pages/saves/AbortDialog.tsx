import { useState, type ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import { abortCheckpoint } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { saveName } from './saveName'

export interface AbortDialogProps {
  checkpoint: Message<'CheckpointSummary'>
  onClose: () => void
}

/** Ends a save for good; every rank is told the reason. */
export function AbortDialog({ checkpoint, onClose }: AbortDialogProps): ReactNode {
  const [reason, setReason] = useState('')
  const abort = useAction(() => abortCheckpoint(checkpoint.id, reason.trim()), {
    done: `Aborted the save of ${saveName(checkpoint)}.`,
    invalidates: CHECKPOINT_CHANGED,
  })
  return (
    <ConfirmDialog
      title={`Abort the save of ${saveName(checkpoint)}`}
      confirmLabel="Abort the save"
      reason={reason.trim() === '' ? 'Write a reason first.' : undefined}
      onConfirm={() => abort.run()}
      onClose={onClose}
    >
      <p>
        The checkpoint ends as aborted, which is final; what its ranks still send is dropped. Training goes on, and its
        next save is one of its own.
      </p>
      <TextField label="Reason, told to every rank" value={reason} onChange={setReason} placeholder="a node is gone" />
    </ConfirmDialog>
  )
}
