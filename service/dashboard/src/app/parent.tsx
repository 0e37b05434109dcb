import type { QueryClient } from '@tanstack/react-query'
import { createRootRouteWithContext, createRoute, redirect } from '@tanstack/react-router'
import { signedInQuery } from '../api/signIn'
import { BareFault, BareNoSuchPage } from './Bare'
import { Shell } from './Shell'

export interface AppContext {
  queryClient: QueryClient
}

export const rootRoute = createRootRouteWithContext<AppContext>()({
  errorComponent: BareFault,
  notFoundComponent: BareNoSuchPage,
})

/** The parent of every page but the sign-in page: it asks who is signed in first, and sends strangers to sign in. */
export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  beforeLoad: async ({ context, location }) => {
    const signedIn = await context.queryClient.query({ ...signedInQuery, staleTime: 'static' })
    if (signedIn === null) throw redirect({ to: '/sign-in', search: { back: location.href } })
    return { signedIn }
  },
  component: Shell,
})
