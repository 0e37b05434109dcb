import { expect, test } from 'vitest'
import { metricRows } from './metricRows'

test("rank 0's metric stands beside the mean", () => {
  expect(metricRows({ 'loss@rank0': 2, loss: 'NaN', acc: 1 })).toEqual([
    { name: 'acc', mean: 1, rank0: undefined },
    { name: 'loss', mean: 'NaN', rank0: 2 },
  ])
})

test('a metric that only looks like one of rank 0 stands alone', () => {
  expect(metricRows({ 'x@rank0': 1 })).toEqual([{ name: 'x@rank0', mean: 1, rank0: undefined }])
})
