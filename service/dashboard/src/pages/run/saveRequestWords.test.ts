import { expect, test } from 'vitest'
import type { Message } from '../../api/client'
import { askedWords, lateHint, saveRequestWords } from './saveRequestWords'

function request(changes: Partial<Message<'SaveRequestInfo'>>): Message<'SaveRequestInfo'> {
  return {
    attempt_id: 'att_1',
    number: 1,
    state: 'waiting',
    requested_at: '2026-03-01T12:00:00Z',
    requested_by: 'ops',
    checkpoint_id: null,
    ...changes,
  }
}

test('a request is told from its making to its end', () => {
  expect(saveRequestWords(request({ state: 'none', number: 0 }))).toBeNull()
  expect(saveRequestWords(request({}))).toBe(
    'A checkpoint was asked for by ops; training takes it up at its next step.',
  )
  expect(saveRequestWords(request({ state: 'saving', checkpoint_id: 'ckp_1' }))).toMatch(/is being saved/)
  expect(saveRequestWords(request({ state: 'done', checkpoint_id: 'ckp_1', requested_by: null }))).toBe(
    'The checkpoint asked for is done.',
  )
})

test('an aborted checkpoint leaves its request waiting', () => {
  expect(saveRequestWords(request({ checkpoint_id: 'ckp_1' }))).toMatch(/was aborted; training tries again/)
})

test('asking twice is told as one request', () => {
  expect(askedWords({ before: request({}), after: request({}) })).toMatch(/already/)
  expect(askedWords({ before: request({ state: 'done' }), after: request({ number: 2 }) })).toMatch(/^Asked for/)
  const none = request({ state: 'none', number: 0, attempt_id: null, requested_at: null })
  expect(askedWords({ before: none, after: request({}) })).toMatch(/^Asked for/)
})

test('one that nobody takes up says what to look at, and one that was taken up does not', () => {
  const soon = new Date('2026-03-01T12:01:59Z')
  const late = new Date('2026-03-01T12:05:30Z')
  expect(lateHint(request({}), soon)).toBeNull()
  expect(lateHint(request({}), late)).toMatch(/^Nobody took it up in 5 min: .*remote_saves/)
  expect(lateHint(request({ state: 'saving', checkpoint_id: 'ckp_1' }), late)).toBeNull()
})
