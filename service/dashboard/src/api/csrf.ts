import type { Middleware } from 'openapi-fetch'

const SAFE = new Set(['GET', 'HEAD', 'OPTIONS'])

/** Beside the cookie, on every request that changes something. */
export const CSRF_HEADER = 'x-shardkeep-csrf'

/** Holds the secret of this page load in memory only: no storage keeps it, so nothing else can read it there. */
export class CsrfSecret {
  #secret: string | null = null

  keep(secret: string): void {
    this.#secret = secret
  }

  forget(): void {
    this.#secret = null
  }

  readonly middleware: Middleware = {
    onRequest: ({ request }) => {
      if (this.#secret !== null && !SAFE.has(request.method)) request.headers.set(CSRF_HEADER, this.#secret)
      return request
    },
  }
}
