import { expect, test } from 'vitest'
import { byteAxis, secondAxis } from './ticks'

test.each([
  [100, [0, 25, 50, 75, 100]],
  [1000, [0, 256, 512, 768, 1024]],
  [3 * 1024 ** 3, [0, 1024 ** 3, 2 * 1024 ** 3, 3 * 1024 ** 3]],
])('%d bytes have round ticks', (largest, ticks) => {
  expect(byteAxis(largest).ticks).toEqual(ticks)
})

test.each([
  [0.0123, [0, 0.005, 0.01, 0.015]],
  [3.2, [0, 1, 2, 3, 4]],
  [95, [0, 30, 60, 90, 120]],
  [7000, [0, 1800, 3600, 5400, 7200]],
])('%d seconds have ticks as clocks have', (largest, ticks) => {
  const axis = secondAxis(largest)
  expect(axis.ticks).toHaveLength(ticks.length)
  axis.ticks.forEach((tick, index) => {
    expect(tick).toBeCloseTo(ticks[index] ?? Number.NaN, 9)
  })
})

test.each([1, 3, 77, 1023, 1025, 4097, 1e9, 123456789, 9.9e15, 2 ** 62])(
  '%d fits on its axis, which has few ticks',
  (largest) => {
    for (const { top, ticks } of [byteAxis(largest), secondAxis(largest)]) {
      expect(top).toBeGreaterThanOrEqual(largest * (1 - 1e-9))
      expect(ticks.length).toBeGreaterThanOrEqual(2)
      expect(ticks.length).toBeLessThanOrEqual(5)
    }
  },
)

test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY])('an axis of %d is still an axis', (largest) => {
  expect(byteAxis(largest)).toEqual({ top: 1, ticks: [0] })
})
