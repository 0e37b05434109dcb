import { expect, test } from 'vitest'
import { absoluteTime, relativeTime, secondsBetween } from './times'

const now = new Date('2026-03-01T12:00:00Z')

test.each([
  ['2026-03-01T11:59:55Z', 'just now'],
  ['2026-03-01T12:00:03Z', 'just now'],
  ['2026-03-01T11:59:30Z', '30 s ago'],
  ['2026-03-01T11:00:30Z', '59 min ago'],
  ['2026-03-01T09:30:00Z', '2 h ago'],
  ['2026-02-20T12:00:00Z', '9 d ago'],
  ['2026-03-01T15:30:00Z', 'in 3 h'],
  ['nonsense', '–'],
])('%s is %s', (time, text) => {
  expect(relativeTime(new Date(time), now)).toBe(text)
})

test('the absolute time names its zone', () => {
  expect(absoluteTime(now)).toMatch(/2026.*(UTC|GMT|[A-Z]{2,})/)
  expect(absoluteTime(new Date('nonsense'))).toBe('unknown')
})

test('seconds lie between two times, and between no others', () => {
  expect(secondsBetween('2026-03-01T12:00:00Z', '2026-03-01T12:01:30Z')).toBe(90)
  expect(secondsBetween(null, '2026-03-01T12:01:30Z')).toBeNull()
})
