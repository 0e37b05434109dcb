import type { ReactNode } from 'react'
import type { Message } from '../api/client'
import { Problem } from '../api/problem'
import { projectsOf, reach, refusal, type Scope } from '../api/scopes'
import { useSignedIn } from '../app/signedIn'
import { Empty } from './Empty'
import { LinkButton } from './LinkButton'
import { Loaded, type LoadedProps } from './Loaded'
import { ProblemNotice } from './ProblemNotice'

/** What a token must reach: `projects` is not for a job's token, `all` is for one that is bound to no project. */
export type Reaching = 'projects' | 'all'

const REACHING: Record<Reaching, string> = { projects: ', of whole projects', all: ', of all projects' }

export interface GuardedProps<Data> extends LoadedProps<Data> {
  /** What this needs, told where the API refuses it. */
  scope: Scope
  reaching?: Reaching
}

/** What a query answered; where the API refuses it, what the token lacks and where it may go. */
export function Guarded<Data>({ query, scope, reaching, children }: GuardedProps<Data>): ReactNode {
  if (!isTooNarrow(query.error)) return <Loaded query={query}>{children}</Loaded>
  return (
    <>
      <Lacking scope={scope} reaching={reaching} />
      <ProblemNotice error={query.error} />
    </>
  )
}

/** Whether the API refused it to this token, and will refuse it again. */
export function isTooNarrow(error: unknown): boolean {
  return error instanceof Problem && error.code === 'scope_too_narrow'
}

interface LackingProps {
  scope: Scope
  reaching: Reaching | undefined
}

function Lacking({ scope, reaching }: LackingProps): ReactNode {
  const { token } = useSignedIn()
  const needed = `a token of scope ${scope}${reaching === undefined ? '' : REACHING[reaching]}`
  return (
    <Empty title={`This needs ${needed}`} command={commandFor(token, scope, reaching)}>
      <p>
        You are signed in with <q>{token.name}</q>, {whatItIs(token)}. Ask an administrator for such a token, then sign
        out and sign in with it.
      </p>
      <WayOn token={token} />
    </Empty>
  )
}

function whatItIs(token: Message<'TokenInfo'>): ReactNode {
  if (token.run) return <>a job’s token: it sees {reach(token)} and nothing else</>
  return (
    <>
      of scope <strong>{token.scope}</strong> for {reach(token)}
    </>
  )
}

function WayOn({ token }: { token: Message<'TokenInfo'> }): ReactNode {
  const [project] = projectsOf(token) ?? []
  if (refusal(token, 'read') !== undefined) return null
  if (token.run && project !== undefined) {
    return (
      <LinkButton to="/runs/$project/$run" params={{ project, run: token.run }} kind="primary">
        Go to run {project}/{token.run}
      </LinkButton>
    )
  }
  return <LinkButton to="/runs">Go to the runs it sees</LinkButton>
}

/** The command that makes such a token, bound to the projects that this one is bound to where that is enough. */
function commandFor(token: Message<'TokenInfo'>, scope: Scope, reaching: Reaching | undefined): string {
  const projects = reaching === 'all' ? [] : (projectsOf(token) ?? [])
  return ['shardkeep token create', `--scope ${scope}`, ...projects.map((name) => `--project ${name}`)].join(' ')
}
