import type { Message } from '../api/client'
import { count } from '../format/numbers'

type Checkpoint = Message<'CheckpointSummary'>
export type CheckpointState = Message<'CheckpointState'>

/** The states in the order of a checkpoint's life, as a legend lists them. */
export const STATES: readonly CheckpointState[] = [
  'open',
  'validating',
  'committed',
  'aborted',
  'deleted',
  'purged',
  'unconfirmed',
]

/** What a mark says, in words: `Step 200, committed, attempt 2, pinned, off the line`. */
export function describeMark(checkpoint: Checkpoint): string {
  const parts = [
    `Step ${count(checkpoint.step)}`,
    checkpoint.state,
    `attempt ${checkpoint.attempt_number}`,
    ...flagsOf(checkpoint),
    ...(checkpoint.tags ?? []).map((tag) => `tagged ${tag}`),
  ]
  return parts.join(', ')
}

/** Whether it was committed and is no longer what the current attempt continues; what never was is on no line. */
export function isOffLine({ on_line, sequence }: Pick<Checkpoint, 'on_line' | 'sequence'>): boolean {
  return sequence !== null && !on_line
}

/** What a checkpoint is beside its state. */
export function flagsOf(checkpoint: Checkpoint): string[] {
  return [
    ...(checkpoint.pinned ? ['pinned'] : []),
    ...(checkpoint.quarantined ? ['quarantined'] : []),
    ...(isOffLine(checkpoint) ? ['off the line'] : []),
  ]
}
