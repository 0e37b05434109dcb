import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { requestSave, runKey, saveRequestQuery, type RunName } from '../../api/run'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { StateBadge } from '../../components/StateBadge'
import { useAction, type Action } from '../../components/useAction'
import { When } from '../../components/When'
import type { Message } from '../../api/client'
import { askedWords, saveRequestWords } from './saveRequestWords'
import styles from './run.module.css'

type Asking = Action<void, Message<'SaveRequestInfo'>>

/** Asks training for a checkpoint at its next step; asking again while one waits changes nothing. */
export function useSaveNow(name: RunName): Asking {
  const request = useQuery(saveRequestQuery(name)).data
  return useAction(() => requestSave(name), {
    done: (after) => askedWords(request, after),
    invalidates: [runKey(name)],
  })
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

/** What became of the last request, and what went wrong with the one just made. */
export function SaveRequestStatus({ name, asking }: { name: RunName; asking: Asking }): ReactNode {
  const request = useQuery(saveRequestQuery(name)).data
  const words = request === undefined ? null : saveRequestWords(request)
  return (
    <>
      {asking.notice}
      {request !== undefined && words !== null && (
        <p className={styles.request} data-save-request={request.state}>
          <StateBadge state={request.state} />
          <span>{words}</span>
          {request.checkpoint_id !== null && (
            <Link to="/checkpoints/$checkpoint" params={{ checkpoint: request.checkpoint_id }}>
              Show this checkpoint
            </Link>
          )}
          <span className={styles.soft}>
            Asked <When time={request.requested_at} />
          </span>
        </p>
      )}
    </>
  )
}
