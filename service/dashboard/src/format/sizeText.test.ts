import { describe, expect, it } from 'vitest'
import { readSize, writeSize } from './sizeText'

describe('readSize', () => {
  it.each([
    ['1000', 1000],
    ['5GB', 5_000_000_000],
    ['5 gb', 5_000_000_000],
    ['1.5k', 1500],
    ['512MiB', 536_870_912],
    ['10TB', 10_000_000_000_000],
    ['2PiB', 2_251_799_813_685_248],
    ['0', 0],
  ])('reads %j as %d bytes', (text, bytes) => {
    expect(readSize(text)).toBe(bytes)
  })

  it.each(['', 'GB', '-1', '5iB', '5 EB', '1e9', '5GB each', '99999999PB'])('takes no %j', (text) => {
    expect(readSize(text)).toBeUndefined()
  })
})

describe('writeSize', () => {
  it.each([
    [10_000_000_000_000, '10 TB'],
    [536_870_912, '512 MiB'],
    [1_234_567, '1234567'],
    [1000, '1 kB'],
    [1024, '1 KiB'],
    [0, '0'],
  ])('writes %d bytes as %j', (bytes, text) => {
    expect(writeSize(bytes)).toBe(text)
  })

  it('reads back what it wrote', () => {
    for (const bytes of [0, 1, 999, 1024, 5_000_000, 2 ** 40, 2 ** 53 - 1, 10 ** 15]) {
      expect(readSize(writeSize(bytes))).toBe(bytes)
    }
  })
})
