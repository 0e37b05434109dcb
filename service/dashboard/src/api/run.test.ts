// @vitest-environment jsdom
import { afterEach, expect, test, vi } from 'vitest'
import type { Message } from './client'
import { requestSave } from './run'

type SaveRequest = Message<'SaveRequestInfo'>

const NAME = { project: 'demo', run: 'gpt' }

function request(state: SaveRequest['state'], number: number): SaveRequest {
  return { attempt_id: 'att_1', number, state, requested_at: null, requested_by: null, checkpoint_id: null }
}

/** Answers in turn; returns what was asked for. */
function serve(...answers: (SaveRequest | string)[]): string[] {
  const asked: string[] = []
  vi.stubGlobal('fetch', ({ method, url }: Request) => {
    const { pathname, search } = new URL(url)
    asked.push(`${method} ${pathname.split('/').at(-1) ?? ''}${search}`)
    const next = answers.shift()
    const refused = { title: 'Fenced', detail: 'Look again.', code: next, status: 409, retryable: false }
    const [body, status] = typeof next === 'string' ? [refused, 409] : [next, 200]
    return Promise.resolve(
      new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } }),
    )
  })
  return asked
}

afterEach(() => {
  vi.unstubAllGlobals()
})

test('the request that waits is asked for by its number, so that there is no second one', async () => {
  const asked = serve(request('waiting', 3), request('waiting', 3))
  const { before, after } = await requestSave(NAME)
  expect(asked).toEqual(['GET save-request', 'POST save-request?number=3'])
  expect([before.number, after.number]).toEqual([3, 3])
})

test('where none waits the next one is asked for', async () => {
  const asked = serve(request('done', 3), request('saving', 4))
  await requestSave(NAME)
  expect(asked.at(-1)).toBe('POST save-request?number=4')
})

test('a number counted for an attempt that is fenced by now is counted anew, once', async () => {
  const asked = serve(request('done', 3), 'attempt_fenced', request('none', 0), request('waiting', 1))
  await requestSave(NAME)
  expect(asked.filter((each) => each.startsWith('POST'))).toEqual([
    'POST save-request?number=4',
    'POST save-request?number=1',
  ])
  serve(request('done', 3), 'attempt_fenced', request('none', 0), 'attempt_fenced')
  await expect(requestSave(NAME)).rejects.toMatchObject({ code: 'attempt_fenced' })
})
