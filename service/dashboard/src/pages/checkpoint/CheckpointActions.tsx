import { useState, type ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import { acceptCheckpoint, isUnfinished, restoreCheckpoint, unpinCheckpoint } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { useAction, type Action } from '../../components/useAction'
import { count } from '../../format/numbers'
import { AbortDialog } from '../saves/AbortDialog'
import type { ActionDialogProps } from './actionDialog'
import { CompareDialog } from './CompareDialog'
import { DeleteDialog } from './DeleteDialog'
import { PinDialog } from './PinDialog'
import { TagDialog } from './TagDialog'
import styles from './checkpoint.module.css'

type Checkpoint = Message<'CheckpointInfo'>
type Open = 'pin' | 'tag' | 'delete' | 'compare' | 'accept' | 'abort'

/** The changes that need no dialog. */
interface DirectActions {
  unpin: Action<void, Checkpoint>
  restore: Action<void, Checkpoint>
}

/** What can be done with a checkpoint in its state; the API decides whether this token may. */
export function CheckpointActions({ checkpoint }: { checkpoint: Checkpoint }): ReactNode {
  const direct: DirectActions = {
    unpin: useAction(() => unpinCheckpoint(checkpoint), { done: 'Unpinned.', invalidates: CHECKPOINT_CHANGED }),
    restore: useAction(() => restoreCheckpoint(checkpoint), { done: 'Restored.', invalidates: CHECKPOINT_CHANGED }),
  }
  const [open, setOpen] = useState<Open | null>(null)
  const close = (): void => {
    setOpen(null)
  }
  return (
    <>
      <Buttons checkpoint={checkpoint} direct={direct} onOpen={setOpen} />
      {direct.unpin.notice !== null && <div className={styles.wide}>{direct.unpin.notice}</div>}
      {direct.restore.notice !== null && <div className={styles.wide}>{direct.restore.notice}</div>}
      {open === 'pin' && <PinDialog checkpoint={checkpoint} onClose={close} />}
      {open === 'tag' && <TagDialog checkpoint={checkpoint} onClose={close} />}
      {open === 'delete' && <DeleteDialog checkpoint={checkpoint} onClose={close} />}
      {open === 'compare' && <CompareDialog checkpoint={checkpoint} onClose={close} />}
      {open === 'accept' && <AcceptDialog checkpoint={checkpoint} onClose={close} />}
      {open === 'abort' && <AbortDialog checkpoint={checkpoint} onClose={close} />}
    </>
  )
}

interface ButtonsProps {
  checkpoint: Checkpoint
  direct: DirectActions
  onOpen: (open: Open) => void
}

function Buttons({ checkpoint, direct, onOpen }: ButtonsProps): ReactNode {
  const writing = useRefusal('write')
  const deleting = useRefusal('delete')
  const accepting = useRefusal('admin')
  const opener = (open: Open) => () => {
    onOpen(open)
  }
  if (isUnfinished(checkpoint)) {
    return (
      <Button kind="danger" reason={writing} onClick={opener('abort')}>
        Abort
      </Button>
    )
  }
  if (checkpoint.state === 'unconfirmed') {
    return (
      <Button kind="primary" reason={accepting} onClick={opener('accept')}>
        Accept
      </Button>
    )
  }
  if (checkpoint.state === 'deleted') {
    return (
      <Button kind="primary" reason={deleting} pending={direct.restore.pending} onClick={direct.restore.start}>
        Restore
      </Button>
    )
  }
  if (checkpoint.state !== 'committed') return null
  return (
    <>
      <Button onClick={opener('compare')}>Compare</Button>
      <Button reason={writing} onClick={opener('tag')}>
        Tag
      </Button>
      {checkpoint.pinned ? (
        <Button reason={writing} pending={direct.unpin.pending} onClick={direct.unpin.start}>
          Unpin
        </Button>
      ) : (
        <Button reason={writing} onClick={opener('pin')}>
          Pin
        </Button>
      )}
      <Button kind="danger" reason={deleting} onClick={opener('delete')}>
        Delete
      </Button>
    </>
  )
}

function AcceptDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const accept = useAction(() => acceptCheckpoint(checkpoint), { done: 'Accepted.', invalidates: CHECKPOINT_CHANGED })
  return (
    <ConfirmDialog
      title={`Accept step ${count(checkpoint.step)}`}
      confirmLabel="Accept"
      kind="primary"
      onConfirm={() => accept.run()}
      onClose={onClose}
    >
      <p>
        A rebuild of the catalogue found this checkpoint whole, without the record of its commit. Accepting commits it:
        it can be read, and resumed from by its id. It cannot be undone but by deleting it.
      </p>
    </ConfirmDialog>
  )
}
