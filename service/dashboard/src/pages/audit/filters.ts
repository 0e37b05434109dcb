/** The filter of the audit log, in the address and in the query of the API. Pure. */

import { textParam } from '../../app/searchParams'

const TEXTS = ['actor', 'action', 'project', 'target'] as const
const TIMES = ['since', 'until'] as const

export type AuditFilter = Partial<Record<(typeof TEXTS)[number] | (typeof TIMES)[number], string>>

export interface AuditSearch extends AuditFilter {
  cursor?: string
}

/** What an address asks for; what makes no sense there is left out. Times are kept in UTC. */
export function auditSearch(raw: Record<string, unknown>): AuditSearch {
  const search: AuditSearch = auditFilter(raw)
  const cursor = textParam(raw.cursor)
  if (cursor !== undefined) search.cursor = cursor
  return search
}

/** The filter alone, without the place in the list. */
export function auditFilter(raw: Record<string, unknown>): AuditFilter {
  const filter: AuditFilter = {}
  for (const name of TEXTS) {
    const text = textParam(raw[name])
    if (text !== undefined) filter[name] = text
  }
  for (const name of TIMES) {
    const time = Date.parse(textParam(raw[name]) ?? '')
    if (!Number.isNaN(time)) filter[name] = new Date(time).toISOString()
  }
  return filter
}

/** Where the export of the same entries is, for a link. */
export function exportAddress(filter: AuditFilter): string {
  const query = new URLSearchParams(Object.entries(auditFilter({ ...filter })))
  return query.size === 0 ? '/v1/audit/export' : `/v1/audit/export?${query.toString()}`
}

/** A moment as a field of the kind `datetime-local` wants it, in the reader's time zone; empty for none. */
export function localFieldText(iso: string | undefined): string {
  if (iso === undefined) return ''
  const time = new Date(iso)
  if (Number.isNaN(time.getTime())) return ''
  const date = [time.getFullYear().toString().padStart(4, '0'), two(time.getMonth() + 1), two(time.getDate())]
  return `${date.join('-')}T${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`
}

/** What such a field holds, as a moment in UTC; empty for none. */
export function momentOfField(text: string): string {
  const time = Date.parse(text) // without a zone that is local time
  return Number.isNaN(time) ? '' : new Date(time).toISOString()
}

function two(value: number): string {
  return value.toString().padStart(2, '0')
}
