import { describe, expect, it } from 'vitest'
import type { Message } from '../../api/client'
import { PAGE_SIZE, shownVerdicts, whyNone } from './verdicts'

function verdict(step: number, kept: boolean): Message<'RetentionVerdict'> {
  const id = `ckp_${step.toString(16).padStart(32, '0')}`
  const at = '2026-11-30T12:00:00Z'
  return { checkpoint_id: id, run: 'r', step, sequence: step, committed_at: at, on_line: true, kept, reasons: [] }
}

const deleted = Array.from({ length: PAGE_SIZE + 20 }, (_, step) => verdict(step, false))
const kept = Array.from({ length: 30 }, (_, step) => verdict(1000 + step, true))
const PLAN = {
  applied: false,
  kept: 50,
  deleted: deleted.length,
  freed_bytes: 1,
  verdicts: [...deleted, ...kept],
  not_listed: 20,
}

describe('the verdicts of a plan', () => {
  it('come a page at a time, the deleted first', () => {
    const first = shownVerdicts(PLAN, undefined, 1)
    expect(first.verdicts).toHaveLength(PAGE_SIZE)
    expect(first.next).toBe(2)
    const second = shownVerdicts(PLAN, undefined, 2)
    expect(second.verdicts.map(({ step }) => step)).toEqual(
      [...deleted.slice(PAGE_SIZE), ...kept].map(({ step }) => step),
    )
    expect(second.next).toBeNull()
  })

  it('can be narrowed', () => {
    expect(shownVerdicts(PLAN, 'kept', 1)).toMatchObject({ verdicts: kept, next: null })
    expect(shownVerdicts(PLAN, 'deleted', 1)).toMatchObject({ next: 2 })
  })

  it('say why none of them is shown: what is counted and not listed is not taken for nothing', () => {
    const many = { ...PLAN, verdicts: deleted, kept: 50, not_listed: 50 }
    expect(whyNone(many, 'kept')).toBe('not listed')
    expect(whyNone({ ...PLAN, kept: 0, not_listed: 0 }, 'kept')).toBe('none like that')
    expect(whyNone({ ...PLAN, kept: 0, deleted: 0, not_listed: 0, verdicts: [] }, undefined)).toBe('none judged')
  })

  it('show the last page for one beyond it', () => {
    expect(shownVerdicts(PLAN, 'kept', 9)).toMatchObject({ page: 1 })
    expect(shownVerdicts({ ...PLAN, verdicts: [] }, undefined, 3)).toMatchObject({ page: 1, verdicts: [], next: null })
  })
})
