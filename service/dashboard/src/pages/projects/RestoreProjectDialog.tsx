import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { PROJECT_CHANGED } from '../../api/changes'
import { restoreProject } from '../../api/projectChanges'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { isName, NAME_RULE } from '../../format/names'

export interface RestoreProjectDialogProps {
  project: Message<'ProjectInfo'>
  onClose: () => void
}

/** Brings a deleted project back, under another name where its own was taken meanwhile. */
export function RestoreProjectDialog({ project, onClose }: RestoreProjectDialogProps): ReactNode {
  const [name, setName] = useState(project.name)
  const restore = useAction(() => restoreProject(project, name === project.name ? null : name), {
    done: `Project ${name} is back.`,
    invalidates: PROJECT_CHANGED,
  })
  const fault = isName(name) ? undefined : `A name is ${NAME_RULE}.`
  return (
    <ConfirmDialog
      title={`Restore project ${project.name}?`}
      confirmLabel="Restore project"
      kind="primary"
      reason={fault}
      onConfirm={restore.run}
      onClose={onClose}
    >
      <p>
        It comes back with the runs that were deleted with it and are not purged yet, and not with those deleted before.
      </p>
      <TextField
        label="Name"
        value={name}
        onChange={setName}
        error={fault}
        hint="Give another where a new project has taken its name meanwhile."
      />
    </ConfirmDialog>
  )
}
