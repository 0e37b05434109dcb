import { given, oneOfParam, textParam } from '../../app/searchParams'
import { rulesOfSearch, canonical, type RetentionRules } from './rules'

const SUBJECTS = ['in_force', 'edited'] as const
const SHOWN = ['deleted', 'kept'] as const

export interface RetentionSearch {
  run?: string
  /** What the dry run is of; none is shown without it. */
  dry?: (typeof SUBJECTS)[number]
  /** The rules that are tried out, without what says nothing. */
  rules?: Partial<RetentionRules>
  /** Which verdicts are shown; all without it. */
  show?: (typeof SHOWN)[number]
  /** Of the verdicts shown; the first is 1. */
  page?: number
}

/** What an address asks for; what makes no sense is left out. */
export function retentionSearch(raw: Record<string, unknown>): RetentionSearch {
  const rules = rulesOfSearch(raw.rules)
  const dry = oneOfParam(raw.dry, SUBJECTS)
  return given({
    run: textParam(raw.run),
    dry: dry === 'edited' && rules === undefined ? undefined : dry,
    rules: rules === undefined ? undefined : canonical(rules),
    show: oneOfParam(raw.show, SHOWN),
    page: pageParam(raw.page),
  })
}

function pageParam(raw: unknown): number | undefined {
  return typeof raw === 'number' && Number.isInteger(raw) && raw > 1 ? raw : undefined
}
