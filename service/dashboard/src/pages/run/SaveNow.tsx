import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { requestSave, runKey, saveRequestQuery, type AskedToSave, type RunName } from '../../api/run'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { ProblemNotice } from '../../components/ProblemNotice'
import { StateBadge } from '../../components/StateBadge'
import { useAction, type Action } from '../../components/useAction'
import { useNow } from '../../components/useNow'
import { When } from '../../components/When'
import { askedWords, lateHint, saveRequestWords } from './saveRequestWords'
import styles from './run.module.css'

type Asking = Action<void, AskedToSave>

/** Asks training for a checkpoint at its next step; asking again while one waits changes nothing. */
export function useSaveNow(name: RunName): Asking {
  return useAction(() => requestSave(name), { done: askedWords, invalidates: [runKey(name)] })
}

export function SaveNowButton({ asking }: { asking: Asking }): ReactNode {
  const refused = useRefusal('write')
  return (
    <Button
      kind="primary"
      reason={refused}
      pending={asking.pending}
      onClick={() => {
        asking.start()
      }}
    >
      Checkpoint now
    </Button>
  )
}

export interface SaveRequestStatusProps {
  name: RunName
  asking: Asking
  /** Whether the page says already what went wrong, since the run itself cannot be had. */
  failing: boolean
}

/** What became of the last request, and what went wrong with the one just made. */
export function SaveRequestStatus({ name, asking, failing }: SaveRequestStatusProps): ReactNode {
  const { data: request, error, refetch } = useQuery(saveRequestQuery(name))
  const now = useNow()
  const words = request === undefined ? null : saveRequestWords(request)
  const hint = request === undefined ? null : lateHint(request, now)
  return (
    <>
      {asking.notice}
      {error !== null && !failing && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      <div className={words === null ? 'visually-hidden' : styles.request} data-save-request={request?.state}>
        {/* There before it says anything, so that what changes in it is read out; nothing in it changes with the time. */}
        <div role="status" className={styles.words}>
          {request !== undefined && words !== null && (
            <>
              <StateBadge state={request.state} />
              <span>{words}</span>
            </>
          )}
        </div>
        {hint !== null && <span className={styles.late}>{hint}</span>}
        {request?.checkpoint_id != null && (
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint: request.checkpoint_id }}>
            Show this checkpoint
          </Link>
        )}
        {request !== undefined && words !== null && (
          <span className={styles.soft}>
            Asked <When time={request.requested_at} />
          </span>
        )}
      </div>
    </>
  )
}
