import { describe, expect, it } from 'vitest'
import { expiresSoon, tokenState } from './tokenState'

const NOW = new Date('2026-11-30T12:00:00Z')

describe('the state of a token', () => {
  it('is usable without an end', () => {
    expect(tokenState({ expires_at: null, revoked_at: null }, NOW)).toBe('living')
  })

  it('is expired from the very moment of its end', () => {
    expect(tokenState({ expires_at: '2026-11-30T12:00:01Z', revoked_at: null }, NOW)).toBe('living')
    expect(tokenState({ expires_at: '2026-11-30T12:00:00Z', revoked_at: null }, NOW)).toBe('expired')
  })

  it('stays revoked after its end', () => {
    expect(tokenState({ expires_at: '2026-01-01T00:00:00Z', revoked_at: '2025-12-01T00:00:00Z' }, NOW)).toBe('revoked')
  })
})

describe('a token that expires soon', () => {
  it.each([
    ['2026-12-01T12:00:00Z', true],
    ['2026-12-31T12:00:00Z', false],
    ['2026-11-01T12:00:00Z', false],
    [null, false],
  ])('with the end %s: %s', (expires_at, soon) => {
    expect(expiresSoon({ expires_at, revoked_at: null }, NOW)).toBe(soon)
  })

  it('is none that is revoked', () => {
    expect(expiresSoon({ expires_at: '2026-12-01T12:00:00Z', revoked_at: '2026-11-30T11:00:00Z' }, NOW)).toBe(false)
  })
})
