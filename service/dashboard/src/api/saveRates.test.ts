import { expect, test } from 'vitest'
import { progressOf, rateOf, remainingSeconds, withSample, type Sample } from './saveRates'

function samples(...seen: [at: number, offered: number, present?: number][]): Sample[] {
  return seen.reduce<Sample[]>((kept, [at, offered, present = 0]) => withSample(kept, { at, offered, present }), [])
}

test('one poll says nothing about a rate', () => {
  expect(rateOf(samples([10, 500]))).toBeNull()
})

test('a rate is what came between polls, and what of it was sent', () => {
  expect(rateOf(samples([10, 0], [12, 400, 300]))).toEqual({ offered: 200, sent: 50 })
})

test('a rate looks back half a minute only', () => {
  const rate = rateOf(samples([0, 0], [10, 1_000_000], [40, 1_000_000], [41, 1_000_000]))
  expect(rate).toEqual({ offered: 0, sent: 0 })
})

test('an answer seen twice counts once, and a count that fell starts over', () => {
  expect(samples([10, 500], [10, 500])).toHaveLength(1)
  expect(samples([10, 500], [12, 100])).toEqual([{ at: 12, offered: 100, present: 0 }])
})

test('progress is a guess, so it never says that all is done', () => {
  expect(progressOf(50, 100)).toBe(0.5)
  expect(progressOf(200, 100)).toBe(0.99)
  expect(progressOf(50, null)).toBeNull()
  expect(progressOf(50, 0)).toBeNull()
})

test('what remains needs a rate, and an end that is still ahead', () => {
  expect(remainingSeconds(50, 100, 10)).toBe(5)
  expect(remainingSeconds(50, 100, 0)).toBeNull()
  expect(remainingSeconds(50, 100, null)).toBeNull()
  expect(remainingSeconds(100, 100, 10)).toBeNull()
  expect(remainingSeconds(50, null, 10)).toBeNull()
})
