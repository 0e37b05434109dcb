import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { CHECKPOINTS_KEY } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { applyPolicy, planQuery, RETENTION_KEY, type Place } from '../../api/retention'
import { RUNS_KEY } from '../../api/runs'
import { Bytes } from '../../components/Bytes'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Loaded } from '../../components/Loaded'
import { useAction } from '../../components/useAction'
import { counted } from '../../format/numbers'
import { placeText } from './rules'

export interface ApplyDialogProps {
  place: Place
  onApplied: (plan: Message<'RetentionPlanAnswer'>) => void
  onClose: () => void
}

/** Tells what applying would delete at this moment, and does it once the place was typed. */
export function ApplyDialog({ place, onApplied, onClose }: ApplyDialogProps): ReactNode {
  const impact = useQuery({ ...planQuery(place, undefined), staleTime: 0, gcTime: 0 })
  const apply = useAction(() => applyPolicy(place), {
    done: ({ deleted }) => `${counted(deleted, 'checkpoint was', 'checkpoints were')} deleted.`,
    invalidates: [RETENTION_KEY, RUNS_KEY, CHECKPOINTS_KEY],
  })
  const nothing = impact.data?.deleted === 0 ? 'Nothing would be deleted.' : undefined
  return (
    <ConfirmDialog
      title={`Apply retention to ${placeText(place)} now?`}
      {...(nothing === undefined ? { typeToConfirm: placeText(place) } : {})}
      confirmLabel="Delete what is not kept"
      reason={impact.data === undefined || impact.isFetching ? 'What would be deleted is not known yet.' : nothing}
      onConfirm={async () => {
        onApplied(await apply.run())
      }}
      onClose={onClose}
    >
      <Loaded query={impact}>{(plan) => <Impact plan={plan} />}</Loaded>
    </ConfirmDialog>
  )
}

function Impact({ plan }: { plan: Message<'RetentionPlanAnswer'> }): ReactNode {
  if (plan.deleted === 0) {
    return <p>Nothing would be deleted: {counted(plan.kept, 'checkpoint stays', 'checkpoints stay')}.</p>
  }
  return (
    <>
      <p>
        <strong>{counted(plan.deleted, 'checkpoint')}</strong> would be deleted now and{' '}
        {counted(plan.kept, 'stays', 'stay')}, by the policies in force: edited rules that are not saved count for
        nothing. Each run is judged anew when it is done.
      </p>
      <p>
        What is deleted can be restored until it is purged: a week from now, unless the service is set otherwise. Then{' '}
        <Bytes value={plan.freed_bytes} /> are freed.
      </p>
    </>
  )
}
