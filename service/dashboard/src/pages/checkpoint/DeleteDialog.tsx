import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import { deleteCheckpoint, impactQuery } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { currentAnswer } from '../../api/current'
import { Bytes } from '../../components/Bytes'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Duration } from '../../components/Duration'
import { Facts } from '../../components/Facts'
import { Loaded } from '../../components/Loaded'
import { useAction } from '../../components/useAction'
import { count, counted } from '../../format/numbers'
import type { ActionDialogProps } from './actionDialog'
import styles from './checkpoint.module.css'

/** Deletes it once its step is typed, and says before what that would mean. */
export function DeleteDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const impact = useQuery(impactQuery(checkpoint.id))
  const remove = useAction(() => deleteCheckpoint(checkpoint), {
    done: 'Deleted; it can be restored until it is purged.',
    invalidates: CHECKPOINT_CHANGED,
  })
  const known = currentAnswer(impact)
  return (
    <ConfirmDialog
      title={`Delete step ${count(checkpoint.step)} of ${checkpoint.project}/${checkpoint.run}`}
      typeToConfirm={String(checkpoint.step)}
      confirmLabel="Delete"
      reason={known === undefined ? 'What deleting it means is not known yet.' : (known.refused_because ?? undefined)}
      onConfirm={() => remove.run()}
      onClose={onClose}
    >
      <Loaded query={impact}>{(found) => <Impact impact={found} />}</Loaded>
    </ConfirmDialog>
  )
}

function Impact({ impact }: { impact: Message<'DeletionImpact'> }): ReactNode {
  const after = impact.latest_after
  const resumedBy = impact.resumed_by ?? []
  return (
    <div className={styles.stack}>
      {impact.refused_because !== null && (
        <p role="alert">
          <strong>{impact.refused_because}</strong>
        </p>
      )}
      <Facts
        facts={[
          { name: 'Frees', value: <><Bytes value={impact.freed_bytes} /> once it is purged</> },
          { name: 'Restorable for', value: <Duration seconds={impact.restorable_seconds} /> },
          {
            name: 'Latest',
            value: impact.is_latest
              ? `It is the latest. ${after === null ? 'Without it the run has none.' : `Without it step ${count(after.step)} is.`}`
              : 'Stays what it is.',
          },
          {
            name: 'Resumed from by',
            value: resumedBy.length === 0 ? 'no attempt' : counted(resumedBy.length, 'attempt'),
          },
          { name: 'Parent of', value: impact.children === 0 ? 'none' : `${counted(impact.children, 'checkpoint')}, which stay whole` },
        ]}
      />
    </div>
  )
}
