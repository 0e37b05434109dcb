import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Problem } from '../api/problem'
import { reach, type Scope } from '../api/scopes'
import { useSignedIn } from '../app/signedIn'
import { Empty } from './Empty'
import { Loaded } from './Loaded'
import { ProblemNotice } from './ProblemNotice'

export interface GuardedProps<Data> {
  query: Pick<UseQueryResult<Data>, 'data' | 'error' | 'refetch'>
  /** What this needs, told where the API refuses it. */
  scope: Scope
  /** Whether it needs a token that is bound to no project. */
  allProjects?: boolean
  children: (data: Data) => ReactNode
}

/** What a query answered; where the API refuses it, what the token lacks. */
export function Guarded<Data>(props: GuardedProps<Data>): ReactNode {
  const { query, scope, allProjects = false, children } = props
  if (!(query.error instanceof Problem) || query.error.code !== 'scope_too_narrow') {
    return <Loaded query={query}>{children}</Loaded>
  }
  return (
    <>
      <Lacking scope={scope} allProjects={allProjects} />
      <ProblemNotice error={query.error} />
    </>
  )
}

function Lacking({ scope, allProjects }: { scope: Scope; allProjects: boolean }): ReactNode {
  const { token } = useSignedIn()
  const needed = `a token of scope ${scope}${allProjects ? ', of all projects' : ''}`
  return (
    <Empty title={`This needs ${needed}`} command={`shardkeep token create --scope ${scope}`}>
      <p>
        You are signed in with <q>{token.name}</q>, of scope <strong>{token.scope}</strong> for {reach(token)}. Ask an
        administrator for such a token, then sign out and sign in with it.
      </p>
    </Empty>
  )
}
