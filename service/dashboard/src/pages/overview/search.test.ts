import { expect, test } from 'vitest'
import { readSearch, windowOf } from './search'

test('a window that cannot be chosen is a week', () => {
  expect(windowOf(readSearch({ hours: '5' })).hours).toBe(168)
  expect(windowOf(readSearch({ hours: 'x' })).hours).toBe(168)
  expect(windowOf(readSearch({ hours: '720' })).hours).toBe(720)
})

test('a project stays in the address', () => {
  expect(readSearch({ project: 'vision', hours: 24 })).toEqual({ project: 'vision', hours: 24 })
})
