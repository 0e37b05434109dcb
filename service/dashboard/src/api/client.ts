import createClient, { type Middleware } from 'openapi-fetch'
import { CsrfSecret } from './csrf'
import { problemOf } from './problem'
import type { components, paths } from './schema'

/** The messages of the API by name: `Message<'RunSummary'>`. */
export type Message<Name extends keyof components['schemas']> = components['schemas'][Name]

export const csrf = new CsrfSecret()

/** Called when the service no longer knows who asks, and when it may know another by now; the router sets both. */
export const signIns = { ended: (): void => undefined, changed: (): void => undefined }

const SIGN_IN = '/v1/sign-in'

const toSignIn: Middleware = {
  onResponse: ({ response, schemaPath }) => {
    if (response.status === 401 && schemaPath !== SIGN_IN) signIns.ended()
    return response
  },
}

/** The API. Every call goes through `answer`, which turns what was refused into a `Problem`. */
export const api = createClient<paths>({
  baseUrl: globalThis.location.origin,
  credentials: 'same-origin',
  headers: { accept: 'application/json' },
  // Looked up at each call, so that tests can put a service of their own in its place.
  fetch: (request) => globalThis.fetch(request),
})
api.use(csrf.middleware, toSignIn)

interface Answered<Data> {
  data?: Data
  error?: unknown
  response: Response
}

/** The body of what was answered; throws a `Problem` for anything but success. */
export async function answer<Data>(asked: Promise<Answered<Data>>): Promise<Data> {
  const { data, error, response } = await asked
  if (!response.ok) {
    const problem = problemOf(error, response)
    // The word of this page is of another sign-in than the cookie, which all tabs share: somebody signed in anew in another.
    if (problem.code === 'csrf_missing') signIns.changed()
    throw problem
  }
  // A 204 has no body, and its type says so.
  return data as Data
}

/** The version a change was decided on, as the header that carries it. */
export function ifMatch(version: number): { 'If-Match': string } {
  return { 'If-Match': `"${version}"` }
}
