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

/** What the API says of it is for whoever writes a client. */
const OTHER_SIGN_IN =
  'In another tab this browser was signed in anew, so the change was refused. This page goes by the new sign-in now: try again.'

/** What went wrong, what to do, and under which request id the service logged it. */
export function ProblemNotice({ error, onRetry }: ProblemNoticeProps): ReactNode {
  const problem = asProblem(error)
  const changed = problem.status === 412
  return (
    <div role="alert" className={styles.notice}>
      <p className={styles.title}>
        <Icon name="alert" /> {changed ? 'Changed meanwhile, look again' : problem.title}
      </p>
      <p className={styles.detail}>{problem.code === 'csrf_missing' ? OTHER_SIGN_IN : problem.detail}</p>
      {/* With each try there is another request id: to be copied, and not to be read out again. */}
      <p className={styles.facts} aria-live="off">
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
