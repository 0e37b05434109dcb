import { expect, test } from 'vitest'
import { saveTimes } from './builders'
import { describeCell } from './cellWords'
import { bandsOf, layOutHeatMap } from './rankTimes'

const ABORTED = saveTimes([5, 9, null, 5], { step: 1200, state: 'aborted', ended_at: null })

test('a cell tells the time, and how it stands to the median', () => {
  const map = layOutHeatMap([ABORTED], bandsOf(0, 3, 64))
  expect(describeCell(map, { band: 1, save: 0 })).toBe(
    'Step 1,200, aborted, rank 1: 9 s, 1.8× the median of 5 s',
  )
  expect(describeCell(map, { band: 2, save: 0 })).toBe('Step 1,200, aborted, rank 2: never arrived')
})

test('a band of ranks names those that are missing and its slowest', () => {
  const map = layOutHeatMap([ABORTED], bandsOf(0, 3, 1))
  expect(describeCell(map, { band: 0, save: 0 })).toBe(
    'Step 1,200, aborted, ranks 0–3: rank 2 never arrived; the slowest, rank 1, took 9 s, 1.8× the median of 5 s',
  )
})

test('an open save waits, a smaller one has no such rank', () => {
  const open = saveTimes([null, null], { state: 'open', ended_at: null })
  const map = layOutHeatMap([open, saveTimes([1])], bandsOf(0, 1, 64))
  expect(describeCell(map, { band: 1, save: 1 })).toBe('Step 100, open, rank 1: not there yet')
  expect(describeCell(map, { band: 1, save: 0 })).toBe('Step 100, committed, rank 1: the save had no such rank')
  expect(describeCell(map, { band: 7, save: 0 })).toBe('')
})
