import type { Message } from '../../api/client'
import type { AskedToSave } from '../../api/run'
import { humanDuration } from '../../format/durations'
import { secondsBetween } from '../../format/times'

type SaveRequest = Message<'SaveRequestInfo'>

/** A step of training hardly takes longer: a request that waits longer than this may wait for nobody. */
const LATE_SECONDS = 120

/** What happened to the last request for a checkpoint, in words; null where there was none. */
export function saveRequestWords(request: SaveRequest): string | null {
  const by = request.requested_by === null ? '' : ` by ${request.requested_by}`
  switch (request.state) {
    case 'none':
      return null
    case 'waiting':
      return request.checkpoint_id === null
        ? `A checkpoint was asked for${by}; training takes it up at its next step.`
        : `The checkpoint asked for${by} was aborted; training tries again at its next step.`
    case 'saving':
      return `The checkpoint asked for${by} is being saved.`
    case 'done':
      return `The checkpoint asked for${by} is done.`
  }
}

/** What to look at where nobody takes a request up: the service cannot know whether any training will. */
export function lateHint({ state, requested_at: asked }: SaveRequest, now: Date): string | null {
  const seconds = secondsBetween(asked, now.toISOString())
  if (state !== 'waiting' || seconds === null || seconds < LATE_SECONDS) return null
  const since = humanDuration(Math.floor(seconds / 60) * 60)
  return `Nobody took it up in ${since}: see that the job runs, steps, and has remote_saves on (the default).`
}

/** What is announced after asking: whether this made a request, or one was waiting already. */
export function askedWords({ before, after }: AskedToSave): string {
  if (before.attempt_id === after.attempt_id && before.number === after.number) {
    return 'A checkpoint has been asked for already; one request is enough.'
  }
  return 'Asked for a checkpoint: training takes it up at its next step.'
}
