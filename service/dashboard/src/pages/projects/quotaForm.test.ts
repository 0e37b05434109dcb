import { describe, expect, it } from 'vitest'
import { isBelowUse, quotaFormOf, readQuotaForm } from './quotaForm'

describe('the form of a quota', () => {
  it.each([
    [{ max_bytes: null, max_checkpoints: null }],
    [{ max_bytes: 10_000_000_000_000, max_checkpoints: 500 }],
    [{ max_bytes: 0, max_checkpoints: 0 }],
    [{ max_bytes: 1_234_567, max_checkpoints: null }],
  ])('gives back %j', (limits) => {
    expect(readQuotaForm(quotaFormOf(limits)).limits).toEqual(limits)
  })

  it.each([
    ['bytes', { bytes: 'much', checkpoints: '' }],
    ['bytes', { bytes: '-1', checkpoints: '1' }],
    ['checkpoints', { bytes: '', checkpoints: '1.5' }],
    ['checkpoints', { bytes: '1GB', checkpoints: '1e3' }],
  ])('names %s where it is wrong', (field, form) => {
    expect(Object.keys(readQuotaForm(form).faults ?? {})).toEqual([field])
  })
})

describe('a limit below what is used', () => {
  const quota = { project: 'p', max_bytes: null, max_checkpoints: null, used_bytes: 100, used_checkpoints: 5, version: 1 }

  it.each([
    [{ max_bytes: 99, max_checkpoints: null }, true],
    [{ max_bytes: 100, max_checkpoints: 5 }, false],
    [{ max_bytes: null, max_checkpoints: 4 }, true],
    [{}, false],
  ])('%j: %s', (limits, below) => {
    expect(isBelowUse(limits, quota)).toBe(below)
  })
})
