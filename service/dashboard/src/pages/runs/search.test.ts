import { expect, test } from 'vitest'
import { changed, filterOf, isFiltered, readSearch, sortChange } from './search'

test('what nobody can mean is left out of the address', () => {
  expect(readSearch({ state: 'burning', sort: '; drop', order: 'up', tab: 'all', search: '  ', cursor: ['x'] })).toEqual({})
})

test('what somebody means is kept', () => {
  const search = { tab: 'deleted', project: 'vision', search: 'resnet', sort: 'name', order: 'asc', cursor: 'abc' }
  expect(readSearch(search)).toEqual(search)
})

test('another filter begins at the first page, another page keeps the filter', () => {
  expect(changed({ cursor: 'abc', project: 'a' }, { search: 'b' })).toEqual({ project: 'a', search: 'b' })
  expect(changed({ project: 'a' }, { cursor: 'abc' })).toEqual({ project: 'a', cursor: 'abc' })
  expect(changed({ project: 'a' }, { project: undefined })).toEqual({})
})

test('the deleted are asked for as a state', () => {
  expect(filterOf({ tab: 'deleted', state: 'idle' })).toMatchObject({ state: 'deleted', sort: 'last_committed', order: 'desc' })
  expect(filterOf({})).not.toHaveProperty('state')
})

test('a header that the list cannot be sorted by changes nothing but the direction', () => {
  expect(sortChange({ by: 'name', order: 'asc' })).toEqual({ sort: 'name', order: 'asc' })
  expect(sortChange({ by: 'colour', order: 'asc' })).toEqual({ order: 'asc' })
})

test('an order narrows nothing', () => {
  expect(isFiltered({ sort: 'name' })).toBe(false)
  expect(isFiltered({ search: 'a' })).toBe(true)
})
