import { expect, it } from 'vitest'
import { collectionState } from './collectionState'

const DONE = {
  passes: 3,
  started_at: '2026-11-30T10:00:00Z',
  ended_at: '2026-11-30T10:01:00Z',
  running: false,
  stopped_because: null,
  removed_objects: 0,
  freed_bytes: 0,
}

it('says what somebody must act on before anything else', () => {
  expect(collectionState({ ...DONE, running: true, stopped_because: 'an unknown commit' }).state).toBe('stopped')
})

it('tells a pass that runs, the first one to come, and the last one that ended apart', () => {
  expect(collectionState({ ...DONE, running: true }).state).toBe('running')
  expect(collectionState({ ...DONE, passes: 0, started_at: null, ended_at: null }).label).toBe('no pass yet')
  expect(collectionState(DONE).label).toBe('up to date')
})
