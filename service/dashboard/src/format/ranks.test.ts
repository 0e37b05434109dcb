import { expect, test } from 'vitest'
import { rankList } from './ranks'

test.each([
  [[3], 'rank 3'],
  [[3, 0, 1, 2, 7], 'ranks 0–3, 7'],
  [[5, 6], 'ranks 5–6'],
])('%j reads as %s', (ranks, text) => {
  expect(rankList(ranks)).toBe(text)
})

test('many stretches are counted, not written', () => {
  expect(rankList([0, 2, 4, 6, 7, 9], 2)).toBe('ranks 0, 2 and 4 more')
})
