import { describe, expect, it } from 'vitest'
import type { Message } from '../../api/client'
import { PAGE_SIZE, shownVerdicts } from './verdicts'

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

  it('can be narrowed, and are counted whole', () => {
    expect(shownVerdicts(PLAN, 'kept', 1)).toMatchObject({ total: 50, next: null })
    expect(shownVerdicts(PLAN, 'deleted', 1)).toMatchObject({ total: 120, next: 2 })
    expect(shownVerdicts(PLAN, undefined, 1).total).toBe(170)
  })

  it('show the last page for one beyond it', () => {
    expect(shownVerdicts(PLAN, 'kept', 9)).toMatchObject({ page: 1 })
    expect(shownVerdicts({ ...PLAN, verdicts: [] }, undefined, 3)).toMatchObject({ page: 1, verdicts: [], next: null })
  })
})
