import type { Message } from './client'

const ORDER = ['metrics', 'read', 'write', 'delete', 'admin'] as const

export type Scope = (typeof ORDER)[number]

/** Why a token may not do what needs `scope`, for a button's reason; undefined where it may. The API decides all the same. */
export function refusal(token: Message<'TokenInfo'>, scope: Scope, allProjects = false): string | undefined {
  const has = ORDER.findIndex((name) => name === token.scope)
  if (has < ORDER.indexOf(scope)) return `Needs a token with scope ${scope}; this one has ${token.scope}.`
  if (allProjects && isBound(token)) return 'Needs a token of all projects; this one is bound to some.'
  return undefined
}

/** Whether the token sees some projects, or one run, only. */
export function isBound(token: Message<'TokenInfo'>): boolean {
  return projectsOf(token) !== null
}

/** The projects a token sees; null for all of them. A token of an older service has one at most. */
export function projectsOf(token: Pick<Message<'TokenInfo'>, 'project' | 'projects'>): string[] | null {
  return token.projects ?? (token.project === null ? null : [token.project])
}

/** What a token reaches, in words. */
export function reach(token: Message<'TokenInfo'>): string {
  const projects = projectsOf(token)
  if (projects === null) return 'all projects'
  if (token.run) return `run ${projects[0] ?? ''}/${token.run}`
  return projects.length === 1 ? `project ${projects[0] ?? ''}` : `${projects.length} projects`
}
