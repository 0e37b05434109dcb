import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { counted } from '../../format/numbers'
import styles from './retention.module.css'

export interface ImpactProps {
  plan: Message<'RetentionPlanAnswer'>
  /** When it would be done: `now`, `at the worker's next interval`. */
  when: string
  /** By which rules: `the policies in force`. */
  by: string
}

/** What a change of retention would delete, in sums; for a dialog that asks before it is done. */
export function Impact({ plan, when, by }: ImpactProps): ReactNode {
  const paused = plan.paused != null && (
    <p className={styles.warning}>Retention is paused, nothing is deleted until it is resumed: {plan.paused}</p>
  )
  if (plan.deleted === 0) {
    return (
      <>
        {paused}
        <p>Nothing would be deleted: {counted(plan.kept, 'checkpoint stays', 'checkpoints stay')}.</p>
      </>
    )
  }
  return (
    <>
      {paused}
      <p>
        <strong>{counted(plan.deleted, 'checkpoint')}</strong> would be deleted {when} and{' '}
        {counted(plan.kept, 'stays', 'stay')}, by {by}. Each run is judged anew when it is done.
      </p>
      <p>
        What is deleted can be restored until it is purged: a week later, unless the service is set otherwise. Then{' '}
        <Bytes value={plan.freed_bytes} /> are freed.
      </p>
    </>
  )
}
