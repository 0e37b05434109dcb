import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import type { Place } from '../../api/retention'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { AppliedDialog } from './AppliedDialog'
import { ApplyDialog } from './ApplyDialog'

export interface ApplyButtonProps {
  place: Place
  answer: Message<'RetentionAnswer'>
}

/** Applies the policies in force now, instead of at the worker's next interval; then shows what was deleted. */
export function ApplyButton({ place, answer }: ApplyButtonProps): ReactNode {
  const [applying, setApplying] = useState(false)
  const [applied, setApplied] = useState<Message<'RetentionPlanAnswer'> | null>(null)
  const refusal = useRefusal('admin')
  return (
    <>
      <Button
        kind="danger"
        reason={refusal ?? idle(place, answer)}
        onClick={() => {
          setApplying(true)
        }}
      >
        Apply now…
      </Button>
      {applying && (
        <ApplyDialog
          place={place}
          onApplied={setApplied}
          onClose={() => {
            setApplying(false)
          }}
        />
      )}
      {applied !== null && !applying && (
        <AppliedDialog
          place={place}
          plan={applied}
          onClose={() => {
            setApplied(null)
          }}
        />
      )}
    </>
  )
}

/** Why there is nothing to apply. A project without a policy may have runs with policies of their own. */
function idle(place: Place, { in_force: inForce, paused }: Message<'RetentionAnswer'>): string | undefined {
  if (paused != null) return 'Retention is paused: nothing is deleted until an operator resumes it.'
  return place.run !== undefined && inForce === null ? 'No policy is in force: everything is kept.' : undefined
}
