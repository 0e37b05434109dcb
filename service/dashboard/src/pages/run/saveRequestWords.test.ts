import { expect, test } from 'vitest'
import type { Message } from '../../api/client'
import { askedWords, saveRequestWords } from './saveRequestWords'

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
  expect(askedWords(request({}), request({}))).toMatch(/already/)
  expect(askedWords(request({ state: 'done' }), request({ number: 2 }))).toMatch(/^Asked for/)
  expect(askedWords(undefined, request({}))).toMatch(/^Asked for/)
})
