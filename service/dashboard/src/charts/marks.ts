import type { Message } from '../api/client'

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
    `Step ${checkpoint.step.toLocaleString('en')}`,
    checkpoint.state,
    `attempt ${checkpoint.attempt_number}`,
    ...flagsOf(checkpoint),
    ...(checkpoint.tags ?? []).map((tag) => `tagged ${tag}`),
  ]
  return parts.join(', ')
}

/** What a checkpoint is beside its state. */
export function flagsOf(checkpoint: Checkpoint): string[] {
  return [
    ...(checkpoint.pinned ? ['pinned'] : []),
    ...(checkpoint.quarantined ? ['quarantined'] : []),
    ...(checkpoint.on_line ? [] : ['off the line']),
  ]
}
