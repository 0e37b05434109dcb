import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import type { Place } from '../../api/retention'
import { Bytes } from '../../components/Bytes'
import { Pager } from '../../components/Pager'
import { SelectField } from '../../components/SelectField'
import { Stat, Stats } from '../../components/Stat'
import { count, counted } from '../../format/numbers'
import styles from './retention.module.css'
import type { RetentionSearch } from './search'
import { NoVerdict } from './NoVerdict'
import { shownVerdicts, whyNone } from './verdicts'
import { VerdictsTable } from './VerdictsTable'

type Show = RetentionSearch['show']

export interface PlanResultProps {
  plan: Message<'RetentionPlanAnswer'>
  place: Place
  show: Show
  page: number
  onLook: (next: Pick<RetentionSearch, 'show' | 'page'>) => void
}

/** What a plan comes to: its sums, and a verdict on each checkpoint with every reason. */
export function PlanResult({ plan, place, show, page, onLook }: PlanResultProps): ReactNode {
  const shown = shownVerdicts(plan, show, page)
  const held = show === undefined ? {} : { show }
  return (
    <>
      <Stats>
        <Stat name={plan.applied ? 'Deleted' : 'To be deleted'} value={count(plan.deleted)} />
        {!plan.applied && <Stat name="Kept" value={count(plan.kept)} />}
        {plan.freed_bytes !== null && (
          <Stat name="Freed" value={<Bytes value={plan.freed_bytes} />} note="once they are purged and collected" />
        )}
      </Stats>
      {plan.paused != null && <p className={styles.warning}>Retention is paused, nothing is deleted: {plan.paused}</p>}
      {!plan.applied && (
        <div className={styles.choice}>
          <SelectField
            label="Show"
            value={show ?? 'all'}
            options={[
              { value: 'all', label: `all ${count(plan.kept + plan.deleted)}` },
              { value: 'deleted', label: `the ${count(plan.deleted)} to be deleted` },
              { value: 'kept', label: `the ${count(plan.kept)} kept` },
            ]}
            onChange={(next) => {
              onLook(next === 'all' ? {} : { show: next })
            }}
          />
        </div>
      )}
      <VerdictsTable
        verdicts={shown.verdicts}
        place={place}
        applied={plan.applied}
        empty={<NoVerdict why={whyNone(plan, show)} place={place} />}
      />
      <Pager
        nextCursor={shown.next === null ? null : String(shown.next)}
        cursor={shown.page === 1 ? undefined : String(shown.page)}
        onCursor={(next) => {
          onLook(next === undefined ? held : { ...held, page: Number(next) })
        }}
      />
      {plan.not_listed > 0 && (
        <p className={styles.soft}>
          {counted(plan.not_listed, 'further verdict is', 'further verdicts are')} counted and not listed: ask about one
          run.
        </p>
      )}
    </>
  )
}
