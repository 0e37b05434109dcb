import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import styles from './Loaded.module.css'
import { Loading } from './Loading'
import { ProblemNotice } from './ProblemNotice'

export interface LoadedProps<Data> {
  query: Pick<UseQueryResult<Data>, 'data' | 'error' | 'refetch'> & { isPlaceholderData?: boolean }
  children: (data: Data) => ReactNode
}

/**
 * What a query answered; until then that it loads, and what went wrong, also above an answer that has grown old. An answer
 * to what was asked before, which stands in for the next one, is pale and said to be on its way.
 */
export function Loaded<Data>({ query, children }: LoadedProps<Data>): ReactNode {
  const { data, error, refetch, isPlaceholderData = false } = query
  return (
    <>
      {error !== null && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      {data === undefined ? (
        error === null && <Loading />
      ) : (
        // Always there: one that comes and goes would make its children anew, and take the focus from them.
        <div aria-busy={isPlaceholderData || undefined} className={styles.answer}>
          {children(data)}
        </div>
      )}
    </>
  )
}
