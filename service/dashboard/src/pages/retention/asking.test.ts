import { expect, it } from 'vitest'
import { askingFor } from './asking'

const PLACE = { project: 'vision', run: 'resnet' }
const PLAN = { applied: false, kept: 1, deleted: 3, freed_bytes: 10, verdicts: [], not_listed: 0 }
const KNOWN = { data: PLAN, isError: false, isPlaceholderData: false, fetchStatus: 'idle' } as const

it('has the place typed before anything is deleted', () => {
  expect(askingFor(PLACE, KNOWN)).toEqual({ kind: 'danger', reason: undefined, typeToConfirm: 'vision/resnet' })
})

it('asks for nothing where nothing is deleted', () => {
  const none = { ...KNOWN, data: { ...PLAN, deleted: 0 } }
  expect(askingFor(PLACE, none)).toEqual({ kind: 'primary', reason: undefined, typeToConfirm: undefined })
})

it.each([
  ['has not come', { data: undefined, fetchStatus: 'fetching' as const }],
  ['is old, and asked for anew', { fetchStatus: 'fetching' as const }],
  ['is old, and could not be had anew', { isError: true }],
  ['was that nothing is deleted, and could not be had anew', { data: { ...PLAN, deleted: 0 }, isError: true }],
])('is not confirmed by an answer that %s', (_, changes) => {
  expect(askingFor(PLACE, { ...KNOWN, ...changes })).toMatchObject({ kind: 'danger', reason: 'What would be deleted is not known yet.' })
})
