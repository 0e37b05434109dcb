import { useState, type ReactNode } from 'react'
import { RUN_CHANGED } from '../../api/changes'
import type { Message } from '../../api/client'
import { deleteRun } from '../../api/runs'
import { Bytes } from '../../components/Bytes'
import { CheckField } from '../../components/CheckField'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { useAction } from '../../components/useAction'
import { counted } from '../../format/numbers'

export interface DeleteRunDialogProps {
  run: Message<'RunSummary'>
  onClose: () => void
}

/** Says what deleting a run would mean, and deletes it once its name was typed. */
export function DeleteRunDialog({ run, onClose }: DeleteRunDialogProps): ReactNode {
  const name = `${run.project}/${run.name}`
  const [force, setForce] = useState(false)
  const deletion = useAction(() => deleteRun(run, { force }), {
    done: `Deleted run ${name}. It can be restored.`,
    invalidates: RUN_CHANGED,
  })
  return (
    <ConfirmDialog
      title={`Delete run ${name}?`}
      typeToConfirm={name}
      confirmLabel="Delete run"
      onConfirm={() => deletion.run()}
      onClose={onClose}
    >
      <p>
        It has {counted(run.committed_checkpoints, 'committed checkpoint')}, which brought{' '}
        <Bytes value={run.stored_bytes} /> to the store. None of them can be loaded any more, and a job that trains it can
        save no more.
      </p>
      <p>It can be restored, from the list of deleted runs, until retention purges it.</p>
      <CheckField
        label="Delete it even while it is saving or has pinned checkpoints"
        hint="A save in progress is aborted."
        checked={force}
        onChange={setForce}
      />
    </ConfirmDialog>
  )
}
