import type { Message } from '../../api/client'

type Plan = Message<'RetentionPlanAnswer'>

type Show = 'deleted' | 'kept' | undefined
/** Why no verdict is listed. */
export type WhyNone = 'none judged' | 'none like that' | 'not listed'

export const PAGE_SIZE = 100

export interface Shown {
  verdicts: Message<'RetentionVerdict'>[]
  page: number
  /** The next page, where there is one. */
  next: number | null
}

/** One page of a plan's verdicts. A page beyond the last is the last. */
export function shownVerdicts(plan: Plan, show: Show, page: number): Shown {
  const chosen = show === undefined ? plan.verdicts : plan.verdicts.filter(({ kept }) => kept === (show === 'kept'))
  const last = Math.max(1, Math.ceil(chosen.length / PAGE_SIZE))
  const at = Math.min(page, last)
  const verdicts = chosen.slice((at - 1) * PAGE_SIZE, at * PAGE_SIZE)
  return { verdicts, page: at, next: at < last ? at + 1 : null }
}

/** Why a choice of a plan's verdicts is empty: nothing is judged, nothing is like that, or what there is of it is not listed. */
export function whyNone(plan: Plan, show: Show): WhyNone {
  if (plan.kept + plan.deleted === 0) return 'none judged'
  const counted = show === undefined ? plan.kept + plan.deleted : show === 'kept' ? plan.kept : plan.deleted
  return counted > 0 && plan.not_listed > 0 ? 'not listed' : 'none like that'
}
