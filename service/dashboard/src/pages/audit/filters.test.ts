import { describe, expect, it } from 'vitest'
import { auditSearch, exportAddress, localFieldText, momentOfField } from './filters'

describe('the address of the audit log', () => {
  it('keeps what the API filters by, and the place in the list', () => {
    const search = { actor: 'tok_1', action: 'token', project: 'p', target: 'ckp_1', cursor: 'c' }
    expect(auditSearch(search)).toEqual(search)
  })

  it('leaves out what is empty, unknown or no time', () => {
    expect(auditSearch({ actor: ' ', since: 'yesterday', limit: 3, project: { a: 1 }, cursor: '' })).toEqual({})
  })

  it('keeps times in UTC', () => {
    expect(auditSearch({ since: '2026-11-01T02:00:00+02:00' })).toEqual({ since: '2026-11-01T00:00:00.000Z' })
  })

  it('reads a number as the text it was written as', () => {
    expect(auditSearch({ project: 2024 })).toEqual({ project: '2024' })
  })
})

describe('the export', () => {
  it('has the filter of the list and not its place', () => {
    const address = exportAddress(
      auditSearch({ action: 'token', project: 'a&b=c', cursor: 'c', since: '2026-11-01T00:00:00Z' }),
    )
    expect(address).toBe('/v1/audit/export?action=token&project=a%26b%3Dc&since=2026-11-01T00%3A00%3A00.000Z')
  })

  it('is of everything without a filter', () => {
    expect(exportAddress({})).toBe('/v1/audit/export')
  })
})

describe('the fields of times', () => {
  it('give back the moment they were filled with', () => {
    for (const iso of ['2026-11-30T23:59:58.000Z', '2026-03-29T01:30:00.000Z', '2024-02-29T12:00:00.000Z']) {
      expect(momentOfField(localFieldText(iso))).toBe(iso)
    }
  })

  it('are empty for no moment', () => {
    expect(localFieldText(undefined)).toBe('')
    expect(localFieldText('soon')).toBe('')
    expect(momentOfField('')).toBe('')
  })
})
