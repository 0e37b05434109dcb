import { expect, it } from 'vitest'
import { retentionSearch } from './search'

it('keeps what is asked for', () => {
  const search = { run: 'resnet', dry: 'edited', rules: { keep_last: 3 }, show: 'deleted', page: 2 }
  expect(retentionSearch(search)).toEqual(search)
})

it('leaves out what says nothing or makes no sense', () => {
  expect(retentionSearch({ run: ' ', dry: 'maybe', rules: { keep_last: 'x' }, show: 'all', page: -1 })).toEqual({})
})

it('tries out no rules that are not there', () => {
  expect(retentionSearch({ dry: 'edited' })).toEqual({})
  expect(retentionSearch({ dry: 'in_force' })).toEqual({ dry: 'in_force' })
})
