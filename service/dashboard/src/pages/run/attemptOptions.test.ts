import { expect, test } from 'vitest'
import { attemptOptions } from './attemptOptions'

const ATTEMPTS = [
  { id: 'att_2', number: 2 },
  { id: 'att_1', number: 1 },
]

test('one may choose any attempt that is known', () => {
  const options = attemptOptions(ATTEMPTS, 'att_1')
  expect(options.map(({ label }) => label)).toEqual(['Any', 'Attempt 2', 'Attempt 1'])
})

test('the one that is chosen is among them, known or not', () => {
  const old = `att_${'0'.repeat(32)}`
  expect(attemptOptions(ATTEMPTS, old)[1]).toEqual({ value: old, label: 'Attempt att_00000000…' })
  expect(attemptOptions([], 'att_1').map(({ value }) => value)).toEqual(['', 'att_1'])
})
