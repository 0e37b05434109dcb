import type { Message } from '../../api/client'
import { currentAnswer } from '../../api/current'
import { placeText } from './rules'

type Plan = Message<'RetentionPlanAnswer'>

export interface Asking {
  kind: 'danger' | 'primary'
  /** Why it cannot be confirmed yet. */
  reason: string | undefined
  typeToConfirm: string | undefined
}

/**
 * How a dialog asks before a change of a place's retention: never before it is known what it would delete, and with the
 * place typed where that is anything.
 */
export function askingFor(
  place: { project: string; run?: string | undefined },
  impact: Parameters<typeof currentAnswer<Plan>>[0],
): Asking {
  const plan = currentAnswer(impact)
  if (plan?.deleted === 0) return { kind: 'primary', reason: undefined, typeToConfirm: undefined }
  return {
    kind: 'danger',
    reason: plan === undefined ? 'What would be deleted is not known yet.' : undefined,
    // While it is asked for anew, what was typed stays, unless the last answer was that nothing is deleted.
    typeToConfirm: impact.data === undefined || impact.data.deleted === 0 ? undefined : placeText(place),
  }
}
