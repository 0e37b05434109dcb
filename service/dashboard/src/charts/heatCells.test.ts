import { expect, test } from 'vitest'
import { saveTimes } from './builders'
import { cellAt, cellBeside, cellPaths, cellSize, shareOf, worstCell } from './heatCells'
import { bandsOf, layOutHeatMap, LEVELS } from './rankTimes'

const SIZE = { width: 10, height: 8 }

/** Two ranks, three saves: a usual one, one with a straggler, one that misses rank 1. */
const MAP = layOutHeatMap(
  [
    saveTimes([1, null], { step: 300, state: 'aborted', ended_at: null }),
    saveTimes([1, 9], { step: 200 }),
    saveTimes([1, 1], { step: 100 }),
  ],
  bandsOf(0, 1, 64),
)

test('a slower level is a wider bar, and the slowest fills the cell', () => {
  const shares = Array.from({ length: LEVELS }, (_, level) => shareOf(level))
  expect(shares).toEqual([...shares].sort((a, b) => a - b))
  expect(shares.at(-1)).toBe(1)
})

test('every cell is in the path of its look', () => {
  const { timed, missing, waiting } = cellPaths(MAP, SIZE)
  const cells = (path: string): number => path.split('z').length - 1
  expect(timed.map(cells)).toEqual([4, 0, 0, 0, 1])
  expect(cells(missing)).toBe(1)
  expect(missing).toMatch(/^M21\.5 9h/)
  expect(waiting).toBe('')
})

test('a point finds its cell, and none outside', () => {
  expect(cellAt(25, 9, SIZE, MAP)).toEqual({ band: 1, save: 2 })
  expect(cellAt(31, 9, SIZE, MAP)).toBeNull()
  expect(cellAt(-1, 9, SIZE, MAP)).toBeNull()
})

test.each([
  ['ArrowUp', { band: 0, save: 1 }],
  ['ArrowDown', { band: 1, save: 1 }],
  ['ArrowLeft', { band: 1, save: 0 }],
  ['ArrowRight', { band: 1, save: 2 }],
  ['PageUp', { band: 0, save: 1 }],
  ['Home', { band: 1, save: 0 }],
  ['End', { band: 1, save: 2 }],
  ['x', { band: 1, save: 1 }],
])('%s goes from the middle of the lower row to %j', (key, expected) => {
  expect(cellBeside({ band: 1, save: 1 }, key, MAP)).toEqual(expected)
})

test('one begins at what is missing, else at what is slow, else at the newest save', () => {
  expect(worstCell(MAP)).toEqual({ band: 1, save: 2 })
  const slow = layOutHeatMap([saveTimes([1, 1]), saveTimes([1, 9, 1])], bandsOf(0, 2, 64))
  expect(worstCell(slow)).toEqual({ band: 1, save: 0 })
  const usual = layOutHeatMap([saveTimes([1, 1]), saveTimes([1, 1])], bandsOf(0, 1, 64))
  expect(worstCell(usual)).toEqual({ band: 0, save: 1 })
  expect(worstCell(layOutHeatMap([], []))).toEqual({ band: 0, save: 0 })
})

test('many ranks and saves have smaller cells', () => {
  expect(cellSize(8, 10)).toEqual({ width: 30, height: 20 })
  expect(cellSize(64, 50)).toEqual({ width: 18, height: 8 })
})
