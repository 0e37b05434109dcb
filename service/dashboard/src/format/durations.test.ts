import { expect, test } from 'vitest'
import { humanDuration } from './durations'

test.each([
  [0, '0 s'],
  [0.0004, '< 1 ms'],
  [0.0123, '12 ms'],
  [0.9996, '1 s'],
  [3.24, '3.2 s'],
  [59.96, '1 min'],
  [61, '1 min 1 s'],
  [3599.7, '1 h'],
  [7500, '2 h 5 min'],
  [86_399, '1 d'],
  [90_000, '1 d 1 h'],
  [400 * 86_400, '400 d'],
  [-5, '−5 s'],
  [Number.POSITIVE_INFINITY, '–'],
])('%d seconds read as %s', (seconds, text) => {
  expect(humanDuration(seconds)).toBe(text)
})
