import type { components } from './schema'

type ProblemDocument = components['schemas']['Problem']

/** What the service refused, or why it did not answer. `code` is stable; `requestId` finds it in the service's log. */
export class Problem extends Error {
  override readonly name = 'Problem'

  constructor(
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    readonly status: number,
    readonly requestId: string | null,
    readonly retryable: boolean,
  ) {
    super(`${title}: ${detail}`)
  }
}

/** The problem an answer describes; one of our own where it describes none, as when a proxy answered. */
export function problemOf(body: unknown, response: Response): Problem {
  const requestId = response.headers.get('x-request-id')
  if (!isProblemDocument(body)) {
    return new Problem(
      'no_problem_document',
      'The service did not answer',
      `Something answered ${response.status} ${response.statusText} in its place. Is it running, and does the proxy reach it?`,
      response.status,
      requestId,
      response.status >= 500,
    )
  }
  return new Problem(
    body.code,
    body.title,
    body.detail,
    body.status,
    body.request_id ?? requestId,
    body.retryable,
  )
}

/** Any error as a problem; one that is no answer at all means that the service was not reached. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  if (error instanceof TypeError && /fetch|network|load failed/i.test(error.message)) {
    const detail = 'No answer came back. Check the connection and whether the service runs, then try again.'
    return new Problem('not_reached', 'The service was not reached', detail, 0, null, true)
  }
  const detail = error instanceof Error ? error.message : String(error)
  return new Problem('dashboard_fault', 'The dashboard failed', detail, 0, null, false)
}

function isProblemDocument(body: unknown): body is ProblemDocument {
  if (typeof body !== 'object' || body === null) return false
  return 'code' in body && typeof body.code === 'string' && 'detail' in body && typeof body.detail === 'string'
}
