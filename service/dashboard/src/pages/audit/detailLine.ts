import type { Message } from '../../api/client'

const LONGEST = 120

/** The details of an entry in one line, cut where it is long; what was changed where there are none. */
export function detailLine({ detail, target }: Pick<Message<'AuditEntryInfo'>, 'detail' | 'target'>): string {
  const parts = Object.entries(detail ?? {}).filter(([, value]) => value !== null)
  if (parts.length === 0) return cut(target)
  return cut(parts.map(([name, value]) => `${name}: ${text(value)}`).join(', '))
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function cut(line: string): string {
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line
}
