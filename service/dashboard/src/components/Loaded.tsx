import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Loading } from './Loading'
import { ProblemNotice } from './ProblemNotice'

export interface LoadedProps<Data> {
  query: Pick<UseQueryResult<Data>, 'data' | 'error' | 'refetch'>
  children: (data: Data) => ReactNode
}

/** What a query answered; until then that it loads, and what went wrong, also above an answer that has grown old. */
export function Loaded<Data>({ query, children }: LoadedProps<Data>): ReactNode {
  const { data, error, refetch } = query
  return (
    <>
      {error !== null && <ProblemNotice error={error} onRetry={() => void refetch()} />}
      {data !== undefined ? children(data) : error === null && <Loading />}
    </>
  )
}
