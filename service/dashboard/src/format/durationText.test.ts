import { describe, expect, it } from 'vitest'

import { readDuration, writeDuration } from './durationText'

describe('readDuration', () => {
  it.each([
    ['14d', 1_209_600],
    ['12h', 43_200],
    ['45m', 2_700],
    ['90s', 90],
    [' 7 D ', 604_800],
    ['0d', 0],
  ])('reads %j as %d seconds', (text, seconds) => {
    expect(readDuration(text)).toBe(seconds)
  })

  it.each(['', '14', 'd', '1.5d', '-3d', '1d12h', '2 weeks', '1e3s', '123456789012s'])('takes no %j', (text) => {
    expect(readDuration(text)).toBeUndefined()
  })
})

describe('writeDuration', () => {
  it.each([
    [604_800, '7d'],
    [90_000, '25h'],
    [5_400, '90m'],
    [61, '61s'],
    [0, '0d'],
  ])('writes %d seconds as %j', (seconds, text) => {
    expect(writeDuration(seconds)).toBe(text)
  })

  it('reads back what it wrote', () => {
    for (const seconds of [1, 59, 60, 3_599, 3_600, 86_399, 86_400, 10_000_000_000]) {
      expect(readDuration(writeDuration(seconds))).toBe(seconds)
    }
  })
})
