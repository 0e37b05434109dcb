import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import type { Place } from '../../api/retention'
import { Button } from '../../components/Button'
import { Dialog } from '../../components/Dialog'
import { PlanResult } from './PlanResult'

export interface AppliedDialogProps {
  place: Place
  plan: Message<'RetentionPlanAnswer'>
  onClose: () => void
}

/** What was deleted just now. */
export function AppliedDialog({ place, plan, onClose }: AppliedDialogProps): ReactNode {
  const [page, setPage] = useState(1)
  const close = (
    <Button kind="primary" onClick={onClose}>
      Close
    </Button>
  )
  return (
    <Dialog title="Applied" onClose={onClose} actions={close}>
      <PlanResult
        plan={plan}
        place={place}
        show={undefined}
        page={page}
        onLook={(next) => {
          setPage(next.page ?? 1)
        }}
      />
    </Dialog>
  )
}
