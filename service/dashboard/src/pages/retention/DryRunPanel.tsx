import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { planQuery, type Place } from '../../api/retention'
import { without } from '../../app/searchParams'
import { Button } from '../../components/Button'
import { Loaded } from '../../components/Loaded'
import { Panel } from '../../components/Panel'
import { When } from '../../components/When'
import { PlanResult } from './PlanResult'
import styles from './retention.module.css'
import { ruleTexts, type RetentionRules } from './rules'
import type { RetentionSearch } from './search'

export interface DryRunPanelProps {
  place: Place
  subject: RetentionSearch['dry']
  /** The rules that are tried out; undefined for what is in force. */
  rules: RetentionRules | undefined
}

/** What would be deleted now, and why: by the policies in force, or by the edited rules. Deletes nothing. */
export function DryRunPanel({ place, subject, rules }: DryRunPanelProps): ReactNode {
  const navigate = useNavigate({ from: '/retention/$project' })
  return (
    <Panel
      title="Dry run"
      actions={
        <Button
          onClick={() =>
            void navigate({
              search: (before) => ({ ...without(before, 'show', 'page'), dry: 'in_force' as const }),
              resetScroll: false,
            })
          }
        >
          Try what is in force
        </Button>
      }
    >
      {subject === undefined ? (
        <p className={styles.soft}>
          Nothing is tried out yet. A dry run shows for every checkpoint whether it stays, with every reason, and how
          many bytes go. It deletes nothing.
        </p>
      ) : (
        <Result place={place} rules={rules} />
      )}
    </Panel>
  )
}

function Result({ place, rules }: Omit<DryRunPanelProps, 'subject'>): ReactNode {
  const { show, page = 1 } = useSearch({ from: '/shell/retention/$project' })
  const navigate = useNavigate({ from: '/retention/$project' })
  const plan = useQuery(planQuery(place, rules))
  const look = (next: Pick<RetentionSearch, 'show' | 'page'>): void => {
    void navigate({ search: (before) => ({ ...without(before, 'show', 'page'), ...next }), resetScroll: false })
  }
  return (
    <div className={styles.stack} aria-busy={plan.isFetching}>
      <div className={styles.tried}>
        <p>
          {rules === undefined ? (
            <>
              Of <strong>the policies in force</strong>.
            </>
          ) : (
            <>
              Of <strong>the edited rules</strong>, which keep {ruleTexts(rules).join('; ')}.
            </>
          )}{' '}
          {plan.data !== undefined && (
            <span className={styles.soft}>
              As of <When time={new Date(plan.dataUpdatedAt).toISOString()} />.
            </span>
          )}
        </p>
        <Button pending={plan.isFetching} onClick={() => void plan.refetch()}>
          Run again
        </Button>
      </div>
      <Loaded query={plan}>
        {(answer) => <PlanResult plan={answer} place={place} show={show} page={page} onLook={look} />}
      </Loaded>
    </div>
  )
}
