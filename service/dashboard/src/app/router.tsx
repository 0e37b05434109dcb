import type { QueryClient } from '@tanstack/react-query'
import { createRouter } from '@tanstack/react-router'
import { csrf, signIns } from '../api/client'
import { signedInQuery } from '../api/signIn'
import { Loading } from '../components/Loading'
import { route as access } from '../pages/access'
import { route as audit } from '../pages/audit'
import { route as checkpoint } from '../pages/checkpoint'
import { route as difference } from '../pages/difference'
import { route as integrity } from '../pages/integrity'
import { route as overview } from '../pages/overview'
import { route as projects } from '../pages/projects'
import { route as retention } from '../pages/retention'
import { route as run } from '../pages/run'
import { route as runs } from '../pages/runs'
import { route as saves } from '../pages/saves'
import { route as signIn } from '../pages/sign-in'
import { route as system } from '../pages/system'
import { PageFault } from './PageFault'
import { rootRoute, shellRoute } from './parent'

const routeTree = rootRoute.addChildren([
  signIn,
  shellRoute.addChildren([
    overview,
    runs,
    run,
    checkpoint,
    difference,
    saves,
    retention,
    integrity,
    access,
    projects,
    audit,
    system,
  ]),
])

/** The router, which from then on also hears when the service no longer knows who asks. */
// eslint-disable-next-line @typescript-eslint/explicit-module-boundary-types -- the router's type is the tree of all pages
export function makeRouter(queryClient: QueryClient) {
  const router = createRouter({
    routeTree,
    basepath: '/ui',
    context: { queryClient },
    defaultPendingComponent: Loading,
    defaultErrorComponent: PageFault,
    scrollRestoration: true,
    trailingSlash: 'never',
    // What a page does not know in the address is gone, and does not come back from the parent route.
    search: { strict: true },
  })
  signIns.ended = () => {
    csrf.forget()
    queryClient.setQueryData(signedInQuery.queryKey, null)
    // The shell asks again who is signed in, learns that nobody is, and leads to the sign-in page and back.
    void router.invalidate()
  }
  signIns.changed = () => {
    // Where the service is not reached, the problem of what was asked is on the page already.
    void lookAgain(queryClient).then(
      () => router.invalidate(),
      () => undefined,
    )
  }
  return router
}

/** Asks anew who is signed in. What another reader saw is dropped, and asked for anew where it is on the page. */
async function lookAgain(queryClient: QueryClient): Promise<void> {
  const before = queryClient.getQueryData(signedInQuery.queryKey)
  const now = await queryClient.query({ ...signedInQuery, staleTime: 0 })
  if (now === null || now.token.id === before?.token.id) return
  const [signIn] = signedInQuery.queryKey
  await queryClient.resetQueries({ predicate: ({ queryKey }) => queryKey[0] !== signIn })
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof makeRouter>
  }
}
