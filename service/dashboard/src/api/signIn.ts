import { queryOptions } from '@tanstack/react-query'
import { answer, api, csrf, type Message } from './client'
import { Problem } from './problem'

/** Who is signed in; null for nobody. */
export const signedInQuery = queryOptions({
  queryKey: ['sign-in'],
  queryFn: async ({ signal }): Promise<Message<'SignedIn'> | null> => {
    try {
      return kept(await answer(api.GET('/v1/sign-in', { signal })))
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return null
      throw error
    }
  },
  staleTime: Number.POSITIVE_INFINITY,
})

export async function signIn(token: string): Promise<Message<'SignedIn'>> {
  return kept(await answer(api.POST('/v1/sign-in', { body: { token } })))
}

export async function signOut(): Promise<void> {
  await answer(api.DELETE('/v1/sign-in'))
  csrf.forget()
}

function kept(signedIn: Message<'SignedIn'>): Message<'SignedIn'> {
  csrf.keep(signedIn.csrf)
  return signedIn
}
