import { expect, test } from 'vitest'
import { currentAnswer } from './current'

const KNOWN = { data: 'plan', isError: false, isPlaceholderData: false, fetchStatus: 'idle' } as const

test('an answer that came and is not asked for again is current', () => {
  expect(currentAnswer(KNOWN)).toBe('plan')
})

test.each([
  ['has not come', { data: undefined, fetchStatus: 'fetching' as const }],
  ['is asked for again', { fetchStatus: 'fetching' as const }],
  ['waits for the network', { fetchStatus: 'paused' as const }],
  ['could not be had again', { isError: true }],
  ['is of something else', { isPlaceholderData: true }],
])('one that %s is not', (_, changes) => {
  expect(currentAnswer({ ...KNOWN, ...changes })).toBeUndefined()
})
