import { expect, test } from 'vitest'
import { savesSearch } from './search'

test('what an address bar cannot mean is left out', () => {
  expect(savesSearch({ project: '', save: {}, rank_state: 'gone', other: 1 })).toEqual({})
  expect(savesSearch({ project: 'demo', save: 'ckp_1', rank_state: 'absent' })).toEqual({
    project: 'demo',
    save: 'ckp_1',
    rank_state: 'absent',
  })
})
