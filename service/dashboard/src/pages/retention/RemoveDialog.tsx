import type { ReactNode } from 'react'
import { clearPolicy, RETENTION_KEY, type Place } from '../../api/retention'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { useAction } from '../../components/useAction'
import { placeText } from './rules'

/** Removes the policy that is set here. */
export function RemoveDialog({ place, onClose }: { place: Place; onClose: () => void }): ReactNode {
  const remove = useAction(() => clearPolicy(place), {
    done: `The policy of ${placeText(place)} is removed.`,
    invalidates: [RETENTION_KEY],
  })
  return (
    <ConfirmDialog
      title={`Remove the policy of ${placeText(place)}?`}
      confirmLabel="Remove policy"
      onConfirm={remove.run}
      onClose={onClose}
    >
      {place.run === undefined ? (
        <p>Runs without a policy of their own then keep everything. Nothing that was deleted comes back by it.</p>
      ) : (
        <p>
          The policy of project {place.project} is then in force for this run, or none, if it has none: try that out
          before, since it may keep less.
        </p>
      )}
    </ConfirmDialog>
  )
}
