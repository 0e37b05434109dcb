import { expect, it } from 'vitest'
import { flagParam, given, oneOfParam, textParam, without } from './searchParams'

it('reads texts, also those the router took for numbers', () => {
  expect(textParam(' vision ')).toBe('vision')
  expect(textParam(2024)).toBe('2024')
  for (const raw of ['', '  ', null, undefined, {}, ['a'], true]) expect(textParam(raw)).toBeUndefined()
})

it('reads flags', () => {
  expect(flagParam(true)).toBe(true)
  expect(flagParam('true')).toBe(true)
  for (const raw of [false, 'false', 'yes', 1, undefined]) expect(flagParam(raw)).toBeUndefined()
})

it('reads known words only', () => {
  expect(oneOfParam('kept', ['kept', 'deleted'])).toBe('kept')
  expect(oneOfParam('<b>', ['kept', 'deleted'])).toBeUndefined()
})

it('leaves out what is not there', () => {
  expect(given({ a: undefined, b: 'x', c: false })).toEqual({ b: 'x', c: false })
})

it('drops what is named', () => {
  const search = { a: 1, b: 'x', c: true }
  expect(without(search, 'b', 'c')).toEqual({ a: 1 })
  expect(search).toEqual({ a: 1, b: 'x', c: true })
})
