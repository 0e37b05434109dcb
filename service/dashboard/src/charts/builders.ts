import type { Message } from '../api/client'

/** A committed checkpoint for tests, on the line of attempt 1, with what `changes` says. */
export function checkpoint(changes: Partial<Message<'CheckpointSummary'>>): Message<'CheckpointSummary'> {
  const step = changes.step ?? 100
  const attempt = changes.attempt_number ?? 1
  return {
    id: `ckp_${attempt}_${step}_${changes.save ?? 1}`,
    project: 'demo',
    run: 'gpt',
    attempt_id: `att_${attempt}`,
    attempt_number: attempt,
    save: 1,
    step,
    world_size: 2,
    state: 'committed',
    sequence: 1,
    on_line: true,
    pinned: false,
    tags: [],
    quarantined: false,
    opened_at: '2026-03-01T12:00:00Z',
    committed_at: '2026-03-01T12:00:10Z',
    raw_bytes: 1000,
    stored_bytes: 500,
    new_bytes: 250,
    metrics: {},
    version: 1,
    ...changes,
  }
}

/** One save's times by rank, committed unless `changes` says otherwise. */
export function saveTimes(
  seconds: (number | null)[],
  changes: Partial<Message<'SaveTimes'>> = {},
): Message<'SaveTimes'> {
  return {
    checkpoint_id: `ckp_${changes.step ?? 100}`,
    attempt_id: 'att_1',
    number: 1,
    save: 1,
    step: 100,
    state: 'committed',
    world_size: seconds.length,
    opened_at: '2026-03-01T12:00:00Z',
    ended_at: '2026-03-01T12:00:10Z',
    seconds,
    ...changes,
  }
}
