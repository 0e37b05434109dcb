import { createRoute, redirect } from '@tanstack/react-router'
import { signedInQuery } from '../../api/signIn'
import { rootRoute } from '../../app/parent'
import { backTo } from './backTo'
import { SignInPage } from './SignInPage'

interface SignInSearch {
  /** Where to go once signed in. */
  back?: string
}

export const route = createRoute({
  getParentRoute: () => rootRoute,
  path: '/sign-in',
  validateSearch: (search): SignInSearch => (typeof search.back === 'string' ? { back: search.back } : {}),
  beforeLoad: async ({ context, search }) => {
    const signedIn = await context.queryClient.query({ ...signedInQuery, staleTime: 'static' })
    if (signedIn !== null) throw redirect({ href: backTo(search.back) })
  },
  component: SignInPage,
})
