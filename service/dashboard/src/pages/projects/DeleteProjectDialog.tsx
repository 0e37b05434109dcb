import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { PROJECT_CHANGED } from '../../api/changes'
import { deleteProject } from '../../api/projectChanges'
import { Bytes } from '../../components/Bytes'
import { CheckField } from '../../components/CheckField'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { useAction } from '../../components/useAction'
import { counted } from '../../format/numbers'

export interface DeleteProjectDialogProps {
  project: Message<'ProjectInfo'>
  onDeleted: (project: Message<'ProjectInfo'>) => void
  onClose: () => void
}

/** Deletes a project with its runs, after its name was typed. */
export function DeleteProjectDialog({ project, onDeleted, onClose }: DeleteProjectDialogProps): ReactNode {
  const [force, setForce] = useState(false)
  const remove = useAction(
    async () => {
      await deleteProject(project, force)
      // Before what it changed is asked for anew, which would not find what else is shown of it.
      onDeleted(project)
    },
    { done: `Project ${project.name} was deleted. It can be restored until it is purged.`, invalidates: PROJECT_CHANGED },
  )
  return (
    <ConfirmDialog
      title={`Delete project ${project.name}?`}
      typeToConfirm={project.name}
      confirmLabel="Delete project"
      onConfirm={remove.run}
      onClose={onClose}
    >
      <p>
        This deletes {counted(project.runs, 'run')} with{' '}
        {counted(project.committed_checkpoints, 'committed checkpoint')} (<Bytes value={project.stored_bytes} />{' '}
        stored). Its name is free at once, and jobs that still train in it are told to stop.
      </p>
      <p>
        All of it can be restored under <em>Deleted</em>, until it is purged: a week from now, unless the service is set
        otherwise. Then the bytes go.
      </p>
      <CheckField
        label="Delete it although it is in use"
        checked={force}
        onChange={setForce}
        hint="Without this, a project is refused in which a run is being saved or a checkpoint is pinned. With it, open saves are aborted."
      />
    </ConfirmDialog>
  )
}
