import { queryOptions } from '@tanstack/react-query'
import { answer, api, ifMatch, type Message } from './client'

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

/** Sets the policy of a place, unless it is another than the one whose version was seen. */
export function setPolicy(
  { project, run }: Place,
  seen: number,
  body: Message<'RetentionRules'>,
): Promise<Message<'RetentionAnswer'>> {
  const header = ifMatch(seen)
  if (run === undefined)
    return answer(api.PUT('/v1/projects/{project}/retention', { params: { path: { project }, header }, body }))
  const params = { path: { project, run }, header }
  return answer(api.PUT('/v1/projects/{project}/runs/{run}/retention', { params, body }))
}

/** Removes the policy of a place, unless it is another than the one whose version was seen. */
export function clearPolicy({ project, run }: Place, seen: number): Promise<Message<'RetentionAnswer'>> {
  const header = ifMatch(seen)
  if (run === undefined)
    return answer(api.DELETE('/v1/projects/{project}/retention', { params: { path: { project }, header } }))
  const params = { path: { project, run }, header }
  return answer(api.DELETE('/v1/projects/{project}/runs/{run}/retention', { params }))
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

