import { expect, test } from 'vitest'
import { differenceSearch } from './search'

test('what an address bar cannot mean is left out', () => {
  expect(differenceSearch({ change: 'moved', search: '', cursor: [] })).toEqual({})
  expect(differenceSearch({ change: 'added', search: 7, cursor: 'abc' })).toEqual({
    change: 'added',
    search: '7',
    cursor: 'abc',
  })
})
