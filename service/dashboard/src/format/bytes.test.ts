import { expect, test } from 'vitest'
import { exactBytes, humanBytes, humanRate } from './bytes'

test.each([
  [0, '0 B'],
  [1, '1 B'],
  [1023, '1,023 B'],
  [1024, '1 KiB'],
  [1536, '1.5 KiB'],
  [1024 ** 2 - 1, '1 MiB'],
  [1.5 * 1024 ** 3, '1.5 GiB'],
  [123.45 * 1024 ** 4, '123 TiB'],
  [2 ** 80, '1,048,576 EiB'],
  [-2048, '−2 KiB'],
  [Number.NaN, '–'],
])('a size of %d bytes reads as %s', (value, text) => {
  expect(humanBytes(value)).toBe(text)
})

test('an exact size counts every byte, and says where it no longer can', () => {
  expect(exactBytes(1)).toBe('1 byte')
  expect(exactBytes(1_610_612_736)).toBe('1,610,612,736 bytes')
  expect(exactBytes(2 ** 60)).toMatch(/^about 1,152,921,504,606,84\d,\d{3} bytes$/)
})

test('a rate needs time that has passed', () => {
  expect(humanRate(2048, 2)).toBe('1 KiB/s')
  expect(humanRate(2048, 0)).toBe('–')
})
