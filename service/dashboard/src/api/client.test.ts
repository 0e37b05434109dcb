// @vitest-environment jsdom
import { afterEach, expect, test, vi } from 'vitest'
import { answer, api, csrf, ifMatch, signIns } from './client'
import { asProblem, Problem } from './problem'

const problem = { type: 'about:blank', title: 'Not allowed', status: 403, detail: 'Ask.', code: 'scope_too_narrow', retryable: false }

function serve(status: number, body: unknown, headers: Record<string, string> = {}): Request[] {
  const seen: Request[] = []
  vi.stubGlobal('fetch', (request: Request) => {
    seen.push(request)
    const text = status === 204 ? null : JSON.stringify(body)
    return Promise.resolve(new Response(text, { status, headers: { 'content-type': 'application/json', ...headers } }))
  })
  return seen
}

afterEach(() => {
  csrf.forget()
  signIns.ended = () => undefined
  signIns.changed = () => undefined
  vi.unstubAllGlobals()
})

test('the secret goes with what changes something, and with nothing else', async () => {
  const seen = serve(200, {})
  csrf.keep('s3cret')
  await answer(api.GET('/v1/overview'))
  await answer(api.POST('/v1/projects', { body: { name: 'a' } }))
  csrf.forget()
  await answer(api.POST('/v1/projects', { body: { name: 'a' } }))
  expect(seen.map((request) => request.headers.get('x-shardkeep-csrf'))).toEqual([null, 's3cret', null])
})

test('a version is sent as the header it is compared with', () => {
  expect(ifMatch(7)).toEqual({ 'If-Match': '"7"' })
})

test('a refusal is thrown with its code, its request and what to do', async () => {
  serve(403, { ...problem, request_id: 'req-1' })
  const refused = await answer(api.GET('/v1/overview')).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(Problem)
  expect(refused).toMatchObject({ code: 'scope_too_narrow', detail: 'Ask.', requestId: 'req-1', status: 403 })
})

test('an answer that is no problem document keeps the request id of its header', async () => {
  serve(502, '<html>', { 'x-request-id': 'req-2' })
  const refused = await answer(api.GET('/v1/overview')).catch((error: unknown) => error)
  expect(refused).toMatchObject({ code: 'no_problem_document', requestId: 'req-2', retryable: true })
})

test('whoever is no longer known is signed out; who fails to sign in is not', async () => {
  const ended = vi.fn()
  signIns.ended = ended
  serve(401, { ...problem, status: 401, code: 'token_invalid' })
  await expect(answer(api.POST('/v1/sign-in', { body: { token: 'x' } }))).rejects.toThrow()
  expect(ended).not.toHaveBeenCalled()
  await expect(answer(api.GET('/v1/overview'))).rejects.toThrow()
  expect(ended).toHaveBeenCalledOnce()
})

test('a word that is of another sign-in than the cookie has the page ask anew who is signed in', async () => {
  const changed = vi.fn()
  signIns.changed = changed
  serve(403, problem)
  await expect(answer(api.POST('/v1/projects', { body: { name: 'a' } }))).rejects.toThrow()
  expect(changed).not.toHaveBeenCalled()
  serve(403, { ...problem, code: 'csrf_missing' })
  await expect(answer(api.POST('/v1/projects', { body: { name: 'a' } }))).rejects.toThrow('Ask.')
  expect(changed).toHaveBeenCalledOnce()
})

test('a service that is not reached is a problem that may be tried again', () => {
  expect(asProblem(new TypeError('Failed to fetch'))).toMatchObject({ code: 'not_reached', retryable: true })
  expect(asProblem(new TypeError('x is not a function'))).toMatchObject({ code: 'dashboard_fault', retryable: false })
})
