import { given, oneOfParam, textParam } from '../../app/searchParams'

export const CHANGES = ['added', 'removed', 'changed', 'reshaped', 'recut'] as const
export type Change = (typeof CHANGES)[number]

export interface DifferenceSearch {
  change?: Change | undefined
  search?: string | undefined
  cursor?: string | undefined
}

export function differenceSearch(raw: Record<string, unknown>): DifferenceSearch {
  return given({
    change: oneOfParam(raw.change, CHANGES),
    search: textParam(raw.search),
    cursor: textParam(raw.cursor),
  })
}
