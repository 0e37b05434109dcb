import { useQuery } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { currentAnswer } from '../../api/current'
import { clearPolicy, planQuery, policyQuery, RETENTION_KEY, type Place } from '../../api/retention'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Loaded } from '../../components/Loaded'
import { useAction, type Action } from '../../components/useAction'
import { askingFor } from './asking'
import { Impact } from './Impact'
import { OFF_LINE_SECONDS, placeText, type RetentionRules } from './rules'

interface RemovalProps {
  place: Place
  remove: Action<void, unknown>
  onClose: () => void
}

export interface RemoveDialogProps extends Omit<RemovalProps, 'remove'> {
  /** The version of the policy that is shown. */
  seen: number
}

/** Removes the policy that is set here. */
export function RemoveDialog({ place, seen, onClose }: RemoveDialogProps): ReactNode {
  const [asked] = useState(seen)
  const remove = useAction(() => clearPolicy(place, asked), {
    done: `The policy of ${placeText(place)} is removed.`,
    invalidates: [RETENTION_KEY],
  })
  if (place.run !== undefined) return <RunRemoval place={place} remove={remove} onClose={onClose} />
  return (
    <ConfirmDialog {...wordsFor(place)} onConfirm={remove.run} onClose={onClose}>
      <p>Runs without a policy of their own then keep everything. Nothing that was deleted comes back by it.</p>
    </ConfirmDialog>
  )
}

/** Of a run: the project's policy, where there is one, is in force then, and may keep less. */
function RunRemoval({ place, remove, onClose }: RemovalProps): ReactNode {
  const project = useQuery({ ...policyQuery({ project: place.project }), staleTime: 0 })
  const known = currentAnswer(project)
  const rules = project.data?.policy?.rules
  const impact = useQuery({ ...tryRules(place, rules), enabled: rules !== undefined })
  const asking = rules === undefined ? { kind: 'danger' as const } : askingFor(place, impact)
  return (
    <ConfirmDialog
      {...wordsFor(place)}
      {...asking}
      {...(known === undefined ? { reason: 'The policy of the project is not known yet.' } : {})}
      onConfirm={remove.run}
      onClose={onClose}
    >
      <Loaded query={project}>
        {({ policy }) =>
          policy === null ? (
            <p>Project {place.project} has no policy: then everything of this run is kept.</p>
          ) : (
            <>
              <p>The policy of project {place.project} is then in force for this run.</p>
              <Loaded query={impact}>
                {(plan) => <Impact plan={plan} when="at the worker’s next interval" by="the policy of the project" />}
              </Loaded>
            </>
          )
        }
      </Loaded>
    </ConfirmDialog>
  )
}

/** Never what is in force now, which is the policy that goes. */
function tryRules(place: Place, rules: RetentionRules | undefined) {
  return { ...planQuery(place, rules ?? { off_line_seconds: OFF_LINE_SECONDS }), staleTime: 0, gcTime: 0 }
}

function wordsFor(place: Place): { title: string; confirmLabel: string } {
  return { title: `Remove the policy of ${placeText(place)}?`, confirmLabel: 'Remove policy' }
}
