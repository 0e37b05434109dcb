import { useState, type ReactNode } from 'react'
import { RUN_CHANGED } from '../../api/changes'
import type { Message } from '../../api/client'
import { restoreRun } from '../../api/runs'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'

export interface RestoreRunDialogProps {
  run: Message<'RunSummary'>
  onClose: () => void
}

/** Restores a deleted run with its checkpoints, under another name where its own was taken meanwhile. */
export function RestoreRunDialog({ run, onClose }: RestoreRunDialogProps): ReactNode {
  const [name, setName] = useState(run.name)
  const wanted = name.trim()
  const restoration = useAction(() => restoreRun(run, wanted === run.name ? null : wanted), {
    done: `Restored run ${run.project}/${wanted}.`,
    invalidates: RUN_CHANGED,
  })
  return (
    <ConfirmDialog
      title={`Restore run ${run.project}/${run.name}?`}
      confirmLabel="Restore run"
      kind="primary"
      reason={wanted === '' ? 'It needs a name.' : undefined}
      onConfirm={() => restoration.run()}
      onClose={onClose}
    >
      <p>Its checkpoints come back with it, as they were when it was deleted.</p>
      <TextField label="Name" value={name} onChange={setName} hint="Another one, where its own was taken meanwhile." />
    </ConfirmDialog>
  )
}
