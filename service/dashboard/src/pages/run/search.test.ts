import { expect, test } from 'vitest'
import { bandOf, isFiltered, listFilter, runSearch, stepParam } from './search'

test('what an address bar cannot mean is left out', () => {
  expect(
    runSearch({ view: 'nonsense', state: '<b>', step_min: -5, step_max: 'x', pinned: 'no', ranks: '9-3', other: 1 }),
  ).toEqual({})
})

test('what it means is kept', () => {
  const search = {
    view: 'times',
    state: 'aborted',
    step_min: 100,
    step_max: 2000,
    pinned: true,
    tag: 'best',
    on_line: true,
    cursor: 'abc',
    ranks: '16-31',
  }
  expect(runSearch(search)).toEqual(search)
  expect(runSearch({ tag: 7 })).toEqual({ tag: '7' })
})

test('the list asks for its own filters and its own page', () => {
  expect(listFilter({ state: 'open', older: 'x', ranks: '0-3' })).toEqual({ state: 'open', limit: 50 })
  expect(isFiltered({ cursor: 'abc', older: 'x' })).toBe(false)
  expect(isFiltered({ pinned: true })).toBe(true)
})

test('steps are whole and not below zero', () => {
  expect([stepParam('200'), stepParam(0), stepParam(''), stepParam('1.5'), stepParam('1e3')]).toEqual([
    200,
    0,
    undefined,
    undefined,
    undefined,
  ])
})

test('a range of ranks has a beginning and an end', () => {
  expect(bandOf('16-31')).toEqual({ first: 16, last: 31 })
  expect(bandOf('3')).toBeUndefined()
  expect(bandOf(undefined)).toBeUndefined()
})
