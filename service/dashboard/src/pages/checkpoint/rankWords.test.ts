import { expect, test } from 'vitest'
import { rankWords } from './rankWords'

test('a rank is absent from a save only while that runs: later it may have begun and not ended', () => {
  expect(rankWords('absent', true)).toBe('absent')
  expect(rankWords('absent', false)).toBe('did not arrive')
  expect(rankWords('arrived', false)).toBe('arrived')
})
