import { expect, test } from 'vitest'
import { checkpointSearch } from './search'

test('what an address bar cannot mean is left out', () => {
  expect(checkpointSearch({ view: 'x', rank_state: 'gone', kind: 1, cursor: {}, tensor: '' })).toEqual({})
})

test('what it means is kept', () => {
  const search = { view: 'tensors', search: 'blocks', tensor: 'model.blocks.0.weight', cursor: 'abc' }
  expect(checkpointSearch(search)).toEqual(search)
})
