import { expect, test } from 'vitest'
import { barSeconds, countTicks, growth, merged, sum, type Stretch } from './stretches'

function stretch(hour: number, committed: number, aborted = 0): Stretch {
  const start = new Date(Date.UTC(2026, 0, 1, hour)).toISOString()
  return { start, committed, aborted, new_bytes: committed * 10, raw_bytes: committed * 100 }
}

test('saves that failed are counted as those that did not', () => {
  const total = sum([stretch(0, 2, 1), stretch(1, 0, 4)])
  expect(total).toMatchObject({ start: stretch(0, 0).start, committed: 2, aborted: 5, raw_bytes: 200 })
})

test('saves are added up by whole multiples of the clock, and none is lost', () => {
  const saves = [stretch(1, 1), stretch(2, 2), stretch(3, 3), stretch(4, 4), stretch(5, 5)]
  const fewer = merged(saves, 2 * 3600)
  expect(fewer.map(({ committed }) => committed)).toEqual([1, 5, 9])
  expect(fewer[2]?.start).toBe(stretch(4, 0).start)
  expect(merged(saves, 3600)).toEqual(saves)
  expect(merged([], 3600)).toEqual([])
})

test.each([
  [24, 50, 1],
  [168, 51, 4],
  [168, 200, 1],
  [720, 36, 24],
  [2160, 50, 48],
  [2160, 2, 168],
])('%d hours with room for %d bars have bars of %d hours', (windowHours, room, hours) => {
  expect(barSeconds(windowHours, room)).toBe(hours * 3600)
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
