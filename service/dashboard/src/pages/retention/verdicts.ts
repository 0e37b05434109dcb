import type { Message } from '../../api/client'

type Plan = Message<'RetentionPlanAnswer'>

export const PAGE_SIZE = 100

export interface Shown {
  verdicts: Message<'RetentionVerdict'>[]
  /** Of this choice, listed or not. */
  total: number
  page: number
  /** The next page, where there is one. */
  next: number | null
}

/** One page of a plan's verdicts. A page beyond the last is the last. */
export function shownVerdicts(plan: Plan, show: 'deleted' | 'kept' | undefined, page: number): Shown {
  const chosen = show === undefined ? plan.verdicts : plan.verdicts.filter(({ kept }) => kept === (show === 'kept'))
  const total = show === undefined ? plan.kept + plan.deleted : show === 'kept' ? plan.kept : plan.deleted
  const last = Math.max(1, Math.ceil(chosen.length / PAGE_SIZE))
  const at = Math.min(page, last)
  const verdicts = chosen.slice((at - 1) * PAGE_SIZE, at * PAGE_SIZE)
  return { verdicts, total, page: at, next: at < last ? at + 1 : null }
}
