import { expect, test } from 'vitest'
import { countTicks, growth, merged, sum, type Stretch } from './stretches'

function stretch(hour: number, committed: number, aborted = 0): Stretch {
  const start = new Date(Date.UTC(2026, 0, 1, hour)).toISOString()
  return { start, committed, aborted, new_bytes: committed * 10, raw_bytes: committed * 100 }
}

test('saves that failed are counted as those that did not', () => {
  const total = sum([stretch(0, 2, 1), stretch(1, 0, 4)])
  expect(total).toMatchObject({ start: stretch(0, 0).start, committed: 2, aborted: 5, raw_bytes: 200 })
})

test('neighbours are added up, and none is lost', () => {
  const saves = [stretch(0, 1), stretch(1, 2), stretch(2, 3), stretch(3, 4), stretch(4, 5)]
  const { saves: fewer, each } = merged(saves, 3)
  expect(each).toBe(2)
  expect(fewer.map(({ committed }) => committed)).toEqual([1, 5, 9])
  expect(fewer[2]?.start).toBe(stretch(3, 0).start)
  expect(merged(saves, 100)).toEqual({ saves, each: 1 })
  expect(merged([], 3).saves).toEqual([])
})

test('growth begins at nothing and ends with all that was brought', () => {
  const grown = growth([stretch(0, 1), stretch(1, 2)], 3600)
  const start = Date.UTC(2026, 0, 1) / 1000
  expect(grown).toEqual({ times: [start, start + 3600, start + 7200], stored: [0, 10, 30], logical: [0, 100, 300] })
  expect(growth([], 3600).times).toEqual([])
})

test.each([
  [0, [0, 1]],
  [1, [0, 1]],
  [3, [0, 1, 2, 3]],
  [9, [0, 5, 10]],
  [37, [0, 10, 20, 30, 40]],
])('an axis up to %d has whole, round marks', (largest, ticks) => {
  expect(countTicks(largest)).toEqual(ticks)
})
