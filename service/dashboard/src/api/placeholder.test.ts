import { expect, test } from 'vitest'
import { whileSameSubject } from './placeholder'

const KEY = ['runs', 'one', 'demo', 'gpt', 'checkpoints', { cursor: 'b' }]

test('another page of the same list shows the last one until it comes', () => {
  const before = { queryKey: ['runs', 'one', 'demo', 'gpt', 'checkpoints', { cursor: 'a' }] }
  expect(whileSameSubject(KEY)('rows', before)).toBe('rows')
})

test('the rows of another run are never shown in place of this one', () => {
  const before = { queryKey: ['runs', 'one', 'demo', 'other', 'checkpoints', { cursor: 'b' }] }
  expect(whileSameSubject(KEY)('rows', before)).toBeUndefined()
  expect(whileSameSubject(KEY)('rows', undefined)).toBeUndefined()
})
