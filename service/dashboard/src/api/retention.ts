import { queryOptions } from '@tanstack/react-query'
import { answer, api, type Message } from './client'
import { Problem } from './problem'

/** What a policy is of: a project, or one of its runs. */
export interface Place {
  project: string
  run?: string | undefined
}

export const RETENTION_KEY = ['retention'] as const

export function policyQuery(place: Place) {
  return queryOptions({
    queryKey: [...RETENTION_KEY, 'policy', place],
    queryFn: ({ signal }) => getPolicy(place, signal),
  })
}

/** What the policies in force would delete now, or the rules given, if they were the policy of this place. */
export function planQuery(place: Place, rules: Message<'RetentionRules'> | undefined) {
  return queryOptions({
    queryKey: [...RETENTION_KEY, 'plan', place, rules ?? null],
    queryFn: ({ signal }) => (rules === undefined ? getPlan(place, signal) : tryRules(place, rules, signal)),
    staleTime: Number.POSITIVE_INFINITY, // a dry run reads every checkpoint: it is run anew when somebody asks for it
  })
}

export function getPolicy({ project, run }: Place, signal?: AbortSignal): Promise<Message<'RetentionAnswer'>> {
  const options = signal === undefined ? {} : { signal }
  if (run === undefined)
    return answer(api.GET('/v1/projects/{project}/retention', { params: { path: { project } }, ...options }))
  const params = { path: { project, run } }
  return answer(api.GET('/v1/projects/{project}/runs/{run}/retention', { params, ...options }))
}

/**
 * Sets the policy of a place, unless it is another than the one that was seen. The API carries no version of a policy, so
 * this looks at the last moment: it tells of a colleague's change, and two in the same instant still overwrite.
 */
export async function setPolicy(
  place: Place,
  seen: Message<'RetentionPolicyInfo'> | null,
  rules: Message<'RetentionRules'>,
): Promise<Message<'RetentionAnswer'>> {
  const { policy } = await getPolicy(place)
  if (policy?.set_at !== seen?.set_at) throw changed(policy)
  return putPolicy(place, rules)
}

export function clearPolicy({ project, run }: Place): Promise<Message<'RetentionAnswer'>> {
  if (run === undefined)
    return answer(api.DELETE('/v1/projects/{project}/retention', { params: { path: { project } } }))
  return answer(api.DELETE('/v1/projects/{project}/runs/{run}/retention', { params: { path: { project, run } } }))
}

export function applyPolicy({ project, run }: Place): Promise<Message<'RetentionPlanAnswer'>> {
  if (run === undefined)
    return answer(api.POST('/v1/projects/{project}/retention/apply', { params: { path: { project } } }))
  return answer(api.POST('/v1/projects/{project}/runs/{run}/retention/apply', { params: { path: { project, run } } }))
}

function getPlan({ project, run }: Place, signal: AbortSignal): Promise<Message<'RetentionPlanAnswer'>> {
  if (run === undefined)
    return answer(api.GET('/v1/projects/{project}/retention/plan', { params: { path: { project } }, signal }))
  const params = { path: { project, run } }
  return answer(api.GET('/v1/projects/{project}/runs/{run}/retention/plan', { params, signal }))
}

function tryRules(
  { project, run }: Place,
  body: Message<'RetentionRules'>,
  signal: AbortSignal,
): Promise<Message<'RetentionPlanAnswer'>> {
  if (run === undefined)
    return answer(api.POST('/v1/projects/{project}/retention/plan', { params: { path: { project } }, body, signal }))
  const params = { path: { project, run } }
  return answer(api.POST('/v1/projects/{project}/runs/{run}/retention/plan', { params, body, signal }))
}

function putPolicy({ project, run }: Place, body: Message<'RetentionRules'>): Promise<Message<'RetentionAnswer'>> {
  if (run === undefined)
    return answer(api.PUT('/v1/projects/{project}/retention', { params: { path: { project } }, body }))
  return answer(api.PUT('/v1/projects/{project}/runs/{run}/retention', { params: { path: { project, run } }, body }))
}

function changed(policy: Message<'RetentionPolicyInfo'> | null): Problem {
  const detail =
    policy === null
      ? 'The policy was removed since you began to edit it. Nothing was saved: discard your edits to begin with what is in force.'
      : `${policy.set_by} has set another policy since you began to edit it. Nothing was saved: discard your edits to begin with that one.`
  return new Problem('version_changed', 'Changed meanwhile', detail, 412, null, false)
}
