import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answer, api, type Message } from './client'
import type { paths } from './schema'

export type TokensFilter = NonNullable<paths['/v1/tokens']['get']['parameters']['query']>

export const TOKENS_KEY = ['tokens'] as const

export function tokensQuery(filter: TokensFilter) {
  return queryOptions({
    queryKey: [...TOKENS_KEY, 'list', filter],
    queryFn: ({ signal }) => answer(api.GET('/v1/tokens', { params: { query: filter }, signal })),
    placeholderData: keepPreviousData,
  })
}

/** The first usable tokens that a token minted for jobs: they are revoked with it. */
export function mintedQuery(parent: string) {
  const query = { parent, living: true, limit: 20 }
  return queryOptions({
    queryKey: [...TOKENS_KEY, 'minted', parent],
    queryFn: ({ signal }) => answer(api.GET('/v1/tokens', { params: { query }, signal })),
  })
}

/** Makes a token. The answer is the only one with its text: hand it to whoever shows it and keep it nowhere. */
export function createToken(body: Message<'CreateToken'>): Promise<Message<'NewToken'>> {
  return answer(api.POST('/v1/tokens', { body }))
}

/** Makes a token for the jobs of one run; for the text holds the same. */
export function mintJobToken(body: Message<'CreateJobToken'>): Promise<Message<'NewToken'>> {
  return answer(api.POST('/v1/tokens/job', { body }))
}

export function revokeToken(token: string): Promise<Message<'TokenInfo'>> {
  return answer(api.DELETE('/v1/tokens/{token}', { params: { path: { token } } }))
}
