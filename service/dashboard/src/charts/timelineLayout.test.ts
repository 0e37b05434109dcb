import { expect, test } from 'vitest'
import { checkpoint } from './builders'
import { labelStride, layOutTimeline, neighbour } from './timelineLayout'

const ROLLED_BACK = [
  checkpoint({ step: 300, attempt_number: 1, save: 3, on_line: false }),
  checkpoint({ step: 300, attempt_number: 2, save: 2 }),
  checkpoint({ step: 200, attempt_number: 2, save: 1, state: 'aborted' }),
  checkpoint({ step: 200, attempt_number: 1, save: 2, on_line: false }),
  checkpoint({ step: 100, attempt_number: 1, save: 1 }),
]

test('attempts have lanes in their order, steps have columns in theirs', () => {
  const { steps, lanes, marks, rows } = layOutTimeline(ROLLED_BACK, [])
  expect(steps).toEqual([100, 200, 300])
  expect(lanes).toEqual([
    { attempt: 1, row: 0, rows: 1 },
    { attempt: 2, row: 1, rows: 1 },
  ])
  expect(marks.map(({ column, row }) => [column, row])).toEqual([
    [0, 0],
    [1, 0],
    [2, 0],
    [1, 1],
    [2, 1],
  ])
  expect(rows).toBe(2)
})

test('a step saved again by the same attempt is stacked, not drawn over', () => {
  const again = [
    checkpoint({ step: 100, save: 2 }),
    checkpoint({ step: 100, save: 1, state: 'aborted' }),
    checkpoint({ step: 100, attempt_number: 2 }),
  ]
  const { lanes, marks } = layOutTimeline(again, [])
  expect(marks.map(({ checkpoint: { state }, row }) => [state, row])).toEqual([
    ['aborted', 0],
    ['committed', 1],
    ['committed', 2],
  ])
  expect(lanes).toEqual([
    { attempt: 1, row: 0, rows: 2 },
    { attempt: 2, row: 2, rows: 1 },
  ])
})

test('an attempt is linked to what it resumed from where both are shown', () => {
  const attempts = [
    { number: 1, decision: 'fresh' },
    { number: 2, decision: 'ckp_1_100_1' },
    { number: 3, decision: 'ckp_1_200_2' },
    { number: 4, decision: null },
  ]
  const { links } = layOutTimeline(ROLLED_BACK, attempts)
  expect(links.map(({ from, to }) => [from.checkpoint.step, to.checkpoint.attempt_number, to.checkpoint.step])).toEqual([
    [100, 2, 200],
  ])
})

test('nothing is laid out as nothing', () => {
  expect(layOutTimeline([], [])).toEqual({ steps: [], lanes: [], marks: [], links: [], rows: 0 })
})

test('steps are written as often as their labels fit', () => {
  expect(labelStride(10, 28, 20)).toBe(1)
  expect(labelStride(10, 28, 60)).toBe(3)
  expect(labelStride(0, 28, 60)).toBe(1)
})

test.each([
  ['ArrowRight', 0, 1],
  ['ArrowRight', 4, 4],
  ['ArrowLeft', 0, 0],
  ['ArrowDown', 0, 3],
  ['ArrowDown', 2, 4],
  ['ArrowDown', 3, 3],
  ['ArrowUp', 3, 1],
  ['ArrowUp', 0, 0],
  ['Home', 3, 0],
  ['End', 0, 4],
  ['x', 2, 2],
])('%s from mark %d leads to mark %d', (key, from, to) => {
  const { marks } = layOutTimeline(ROLLED_BACK, [])
  expect(neighbour(marks, from, key)).toBe(to)
})
