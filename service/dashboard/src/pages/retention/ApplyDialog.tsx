import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import type { Message } from '../../api/client'
import { applyPolicy, planQuery, type Place } from '../../api/retention'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Loaded } from '../../components/Loaded'
import { useAction } from '../../components/useAction'
import { counted } from '../../format/numbers'
import { askingFor } from './asking'
import { Impact } from './Impact'
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
    invalidates: CHECKPOINT_CHANGED,
  })
  const { reason, typeToConfirm } = askingFor(place, impact)
  return (
    <ConfirmDialog
      title={`Apply retention to ${placeText(place)} now?`}
      typeToConfirm={typeToConfirm}
      confirmLabel="Delete what is not kept"
      reason={reason ?? (impact.data?.deleted === 0 ? 'Nothing would be deleted.' : undefined)}
      onConfirm={async () => {
        onApplied(await apply.run())
      }}
      onClose={onClose}
    >
      <Loaded query={impact}>
        {(plan) => (
          <Impact plan={plan} when="now" by="the policies in force: edited rules that are not saved count for nothing" />
        )}
      </Loaded>
    </ConfirmDialog>
  )
}
