import { useRouteContext } from '@tanstack/react-router'
import type { Message } from '../api/client'
import { refusal, type Scope } from '../api/scopes'

/** Who is signed in, on every page below the shell. */
export function useSignedIn(): Message<'SignedIn'> {
  return useRouteContext({ from: '/shell', select: (context): Message<'SignedIn'> => context.signedIn })
}

/** Why this sign-in may not do what needs `scope`, to be a button's `reason`; undefined where it may. */
export function useRefusal(scope: Scope, allProjects = false): string | undefined {
  return refusal(useSignedIn().token, scope, allProjects)
}
