import { queryOptions } from '@tanstack/react-query'
import { answer, api, type Message } from './client'

export const QUOTAS_KEY = ['quotas'] as const

export function quotaQuery(project: string) {
  return queryOptions({
    queryKey: [...QUOTAS_KEY, project],
    queryFn: ({ signal }) => answer(api.GET('/v1/projects/{project}/quota', { params: { path: { project } }, signal })),
  })
}

export function setQuota(project: string, body: Message<'SetQuota'>): Promise<Message<'QuotaInfo'>> {
  return answer(api.PUT('/v1/projects/{project}/quota', { params: { path: { project } }, body }))
}
