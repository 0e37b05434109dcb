import { expect, test } from 'vitest'
import { checkpoint } from './builders'
import { shapeOf } from '../components/states'
import { describeMark, STATES } from './marks'

test('no two states have the same shape', () => {
  expect(new Set(STATES.map((state) => shapeOf(state).shape)).size).toBe(STATES.length)
})

test('what was never committed is not called off the line', () => {
  expect(describeMark(checkpoint({ state: 'aborted', sequence: null, on_line: false }))).toBe(
    'Step 100, aborted, attempt 1',
  )
})

test('a mark says in words whatever it shows', () => {
  const marked = checkpoint({
    step: 1200,
    state: 'deleted',
    attempt_number: 3,
    pinned: true,
    quarantined: true,
    on_line: false,
    tags: ['best'],
  })
  expect(describeMark(marked)).toBe(
    'Step 1,200, deleted, attempt 3, pinned, quarantined, off the line, tagged best',
  )
  expect(describeMark(checkpoint({ step: 5 }))).toBe('Step 5, committed, attempt 1')
})
