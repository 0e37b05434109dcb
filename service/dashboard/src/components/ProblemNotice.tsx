import type { ReactNode } from 'react'
import { asProblem } from '../api/problem'
import { Button } from './Button'
import { CopyButton } from './CopyButton'
import { Icon } from './Icon'
import styles from './ProblemNotice.module.css'

export interface ProblemNoticeProps {
  error: unknown
  onRetry?: () => void
}

/** What went wrong, what to do, and under which request id the service logged it. */
export function ProblemNotice({ error, onRetry }: ProblemNoticeProps): ReactNode {
  const problem = asProblem(error)
  const changed = problem.status === 412
  return (
    <div role="alert" className={styles.notice}>
      <p className={styles.title}>
        <Icon name="alert" /> {changed ? 'Changed meanwhile, look again' : problem.title}
      </p>
      <p className={styles.detail}>{problem.detail}</p>
      <p className={styles.facts}>
        <span>
          code <code>{problem.code}</code>
        </span>
        {problem.requestId !== null && (
          <span>
            request <code>{problem.requestId}</code> <CopyButton text={problem.requestId} label="request id" />
          </span>
        )}
      </p>
      {onRetry !== undefined && <Button onClick={onRetry}>{changed ? 'Look again' : 'Try again'}</Button>}
    </div>
  )
}
