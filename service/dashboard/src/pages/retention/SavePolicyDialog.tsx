import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { planQuery, RETENTION_KEY, setPolicy, type Place } from '../../api/retention'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Loaded } from '../../components/Loaded'
import { useAction } from '../../components/useAction'
import { askingFor } from './asking'
import { Impact } from './Impact'
import { placeText, ruleTexts, type RetentionRules } from './rules'
import styles from './retention.module.css'

export interface SavePolicyDialogProps {
  place: Place
  /** The version of the policy that the edits began with. */
  seen: number
  rules: RetentionRules
  onSaved: (answer: Message<'RetentionAnswer'>) => void
  onClose: () => void
}

/** Sets a policy, once it is told what it would delete: the worker applies it by itself, so this deletes as applying does. */
export function SavePolicyDialog({ place, seen, rules, onSaved, onClose }: SavePolicyDialogProps): ReactNode {
  const impact = useQuery({ ...planQuery(place, rules), staleTime: 0, gcTime: 0 })
  const save = useAction(() => setPolicy(place, seen, rules), {
    done: `The policy of ${placeText(place)} is set. The worker applies it at its next interval.`,
    invalidates: [RETENTION_KEY],
  })
  return (
    <ConfirmDialog
      title={`Set the policy of ${placeText(place)}?`}
      {...askingFor(place, impact)}
      confirmLabel="Set policy"
      onConfirm={async () => {
        onSaved(await save.run())
      }}
      onClose={onClose}
    >
      <p>It keeps:</p>
      <ul className={styles.rules}>
        {ruleTexts(rules).map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
      <Loaded query={impact}>
        {(plan) => <Impact plan={plan} when="at the worker’s next interval" by="these rules" />}
      </Loaded>
    </ConfirmDialog>
  )
}
