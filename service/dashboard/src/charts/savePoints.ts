import type { Message } from '../api/client'
import { secondsBetween } from '../format/times'

type Checkpoint = Message<'CheckpointSummary'>

/** What one committed save measured. Rates are bytes a second, null where no time passed. */
export interface SavePoint {
  id: string
  step: number
  attempt: number
  onLine: boolean
  seconds: number
  /** What it holds, before deduplication and compression. */
  rawBytes: number
  /** What it brought to the store. */
  newBytes: number
  /** State saved a second: `rawBytes` over `seconds`. */
  throughput: number | null
}

/** The committed ones in the order of their commit; deleted ones count, for they were saved all the same. */
export function savePoints(checkpoints: readonly Checkpoint[]): SavePoint[] {
  return checkpoints
    .filter(({ sequence }) => sequence !== null)
    .sort((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0))
    .flatMap((checkpoint) => pointOf(checkpoint) ?? [])
}

function pointOf(checkpoint: Checkpoint): SavePoint | null {
  const seconds = secondsBetween(checkpoint.opened_at, checkpoint.committed_at)
  if (seconds === null) return null
  const rawBytes = checkpoint.raw_bytes ?? 0
  return {
    id: checkpoint.id,
    step: checkpoint.step,
    attempt: checkpoint.attempt_number,
    onLine: checkpoint.on_line,
    seconds,
    rawBytes,
    newBytes: checkpoint.new_bytes ?? 0,
    throughput: seconds > 0 ? rawBytes / seconds : null,
  }
}
