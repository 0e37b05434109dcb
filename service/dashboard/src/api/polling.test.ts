import { expect, test } from 'vitest'
import { every, everyAs, everyOnFirstPage } from './polling'
import { Problem } from './problem'

function refused(retryable: boolean): { state: { data: undefined; error: Error } } {
  return { state: { data: undefined, error: new Problem('some_code', 'Refused', 'for a reason', 404, 'req', retryable) } }
}

const ANSWERED = { state: { data: 3, error: null } }

test('what was answered, or may be answered yet, is asked for again', () => {
  expect(every(10)(ANSWERED)).toBe(10)
  expect(every(10)(refused(true))).toBe(10)
  expect(every(10)({ state: { data: undefined, error: new TypeError('Failed to fetch') } })).toBe(10)
})

test('what was refused for good is not', () => {
  expect(every(10)(refused(false))).toBe(false)
  expect(everyAs(() => 10)(refused(false))).toBe(false)
})

test('an answer may say how often', () => {
  const busy = everyAs<number>((data) => (data === 3 ? 2 : false))
  expect(busy(ANSWERED)).toBe(2)
  expect(busy({ state: { data: 4, error: null } })).toBe(false)
})

test('only the first page of a list is asked for again', () => {
  const first = everyOnFirstPage(undefined, 10)
  expect(first !== false && first(ANSWERED)).toBe(10)
  expect(everyOnFirstPage('abc', 10)).toBe(false)
})
