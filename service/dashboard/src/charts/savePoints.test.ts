import { expect, test } from 'vitest'
import { checkpoint } from './builders'
import { savePoints } from './savePoints'

test('committed saves are points in the order of their commit, deleted ones too', () => {
  const points = savePoints([
    checkpoint({ step: 300, sequence: 3, state: 'deleted' }),
    checkpoint({ step: 250, sequence: null, state: 'aborted', committed_at: null }),
    checkpoint({ step: 100, sequence: 1 }),
    checkpoint({ step: 200, sequence: 2 }),
  ])
  expect(points.map(({ step }) => step)).toEqual([100, 200, 300])
})

test('throughput is what was saved over how long it took', () => {
  const [point] = savePoints([checkpoint({ raw_bytes: 1000, new_bytes: 250 })])
  expect(point).toMatchObject({ seconds: 10, rawBytes: 1000, newBytes: 250, throughput: 100 })
})

test('a save that took no time has no throughput', () => {
  const at = '2026-03-01T12:00:00Z'
  const [point] = savePoints([checkpoint({ opened_at: at, committed_at: at })])
  expect(point).toMatchObject({ seconds: 0, throughput: null })
})
