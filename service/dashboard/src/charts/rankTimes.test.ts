import { expect, test } from 'vitest'
import { saveTimes } from './builders'
import { bandsOf, lastRank, layOutHeatMap, levelOf, median, slowestRanks } from './rankTimes'

test('ranks have a row each until there are more than rows', () => {
  expect(bandsOf(0, 2, 64)).toEqual([
    { first: 0, last: 0 },
    { first: 1, last: 1 },
    { first: 2, last: 2 },
  ])
  const bands = bandsOf(0, 1023, 64)
  expect(bands).toHaveLength(64)
  expect(bands[1]).toEqual({ first: 16, last: 31 })
  expect(bandsOf(0, 99, 64).at(-1)).toEqual({ first: 98, last: 99 })
  expect(bandsOf(0, 64, 64).at(-1)).toEqual({ first: 64, last: 64 })
  expect(bandsOf(0, -1, 64)).toEqual([])
})

test('a median passes over what is missing', () => {
  expect(median([3, null, 1, 2])).toBe(2)
  expect(median([9, 1])).toBe(1)
  expect(median([null])).toBeNull()
})

test.each([
  [1, 1, 0],
  [1.3, 1, 1],
  [1.5, 1, 2],
  [2, 1, 3],
  [3.9, 1, 3],
  [4, 1, 4],
  [0.04, 0.01, 0],
  [0.5, 0, 4],
])('%d s where %d s are usual is level %d', (seconds, usual, level) => {
  expect(levelOf(seconds, usual)).toBe(level)
})

test('saves stand in the order of time, oldest first', () => {
  const map = layOutHeatMap([saveTimes([1], { step: 200 }), saveTimes([1], { step: 100 })], bandsOf(0, 0, 64))
  expect(map.saves.map(({ step }) => step)).toEqual([100, 200])
})

test('a straggler and a missing rank are told apart from the usual', () => {
  const aborted = saveTimes([1, 1, null, 5], { state: 'aborted', ended_at: null })
  const { cells, medians } = layOutHeatMap([aborted], bandsOf(0, 3, 64))
  expect(medians).toEqual([1])
  expect(cells.map(([cell]) => [cell?.kind, cell?.level])).toEqual([
    ['timed', 0],
    ['timed', 0],
    ['missing', 0],
    ['timed', 4],
  ])
  expect(cells[2]?.[0]?.absent).toEqual([2])
})

test('ranks that an open save waits for are not missing', () => {
  const open = saveTimes([1, null], { state: 'open', ended_at: null })
  expect(layOutHeatMap([open], bandsOf(0, 1, 64)).cells[1]?.[0]?.kind).toBe('waiting')
})

test('a band shows its slowest rank, and every one that is missing', () => {
  const save = saveTimes([1, 3, null, 1], { state: 'aborted' })
  const [cell] = layOutHeatMap([save], bandsOf(0, 3, 1)).cells[0] ?? []
  expect(cell).toMatchObject({ kind: 'missing', absent: [2], slowest: 1, seconds: 3, ratio: 3 })
})

test('a smaller world has no cells for the ranks of a larger one, nor do they count as missing', () => {
  const saves = [saveTimes([1, 1, 1]), saveTimes([1])]
  expect(lastRank(saves)).toBe(2)
  const { cells } = layOutHeatMap(saves, bandsOf(0, 2, 64))
  expect(cells.map((row) => row.map(({ kind }) => kind))).toEqual([
    ['timed', 'timed'],
    ['none', 'timed'],
    ['none', 'timed'],
  ])
  expect(layOutHeatMap([saveTimes([1, 1, 1])], bandsOf(0, 3, 2)).cells[1]?.[0]?.absent).toEqual([])
})

test('the slowest ranks are listed, the missing ones before them', () => {
  const saves = [
    saveTimes([1, 2, 1, 1], { step: 300 }),
    saveTimes([1, 6, 1, null], { step: 200, state: 'aborted' }),
    saveTimes([1, 2, 1, 1], { step: 100 }),
  ]
  const [first, second, ...rest] = slowestRanks(saves)
  expect(rest).toEqual([])
  expect(first).toMatchObject({ rank: 3, saves: 3, missing: 1, slowest: 0 })
  expect(second).toEqual({
    rank: 1,
    saves: 3,
    missing: 0,
    slowest: 3,
    usualRatio: 2,
    worstRatio: 6,
    worstSeconds: 6,
    worstStep: 200,
  })
})

test('a thousand ranks in fifty saves are laid out whole', () => {
  const saves = Array.from({ length: 50 }, (_, step) =>
    saveTimes(
      Array.from({ length: 1024 }, (_, rank) => (rank === 777 ? 9 : 1)),
      { step },
    ),
  )
  const { cells } = layOutHeatMap(saves, bandsOf(0, 1023, 64))
  expect(cells).toHaveLength(64)
  expect(cells[48]?.every(({ level, slowest }) => level === 4 && slowest === 777)).toBe(true)
  expect(slowestRanks(saves).map(({ rank }) => rank)).toEqual([777])
})

test('a run whose ranks all come in time has none that is missing or slow', () => {
  expect(slowestRanks([saveTimes([10, 11, 12, 10]), saveTimes([10, 9, 10, 12])])).toEqual([])
})

test('noise is no slowness, whatever the ratio, and one that was slow once is listed', () => {
  expect(slowestRanks([saveTimes([0.001, 0.003])])).toEqual([])
  const [only] = slowestRanks([saveTimes([0.001, 0.003], { step: 200 }), saveTimes([1, 1.3], { step: 100 })])
  expect(only).toMatchObject({ rank: 1, usualRatio: 1, worstRatio: 1.3, worstStep: 100 })
})
