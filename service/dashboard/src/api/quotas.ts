import { queryOptions } from '@tanstack/react-query'
import { answer, api, ifMatch, type Message } from './client'

export const QUOTAS_KEY = ['quotas'] as const

export function quotaQuery(project: string) {
  return queryOptions({
    queryKey: [...QUOTAS_KEY, project],
    queryFn: ({ signal }) => answer(api.GET('/v1/projects/{project}/quota', { params: { path: { project } }, signal })),
  })
}

/** Sets the limits of a project, unless they are others than those whose version was seen. */
export function setQuota(project: string, seen: number, body: Message<'SetQuota'>): Promise<Message<'QuotaInfo'>> {
  const params = { path: { project }, header: ifMatch(seen) }
  return answer(api.PUT('/v1/projects/{project}/quota', { params, body }))
}
