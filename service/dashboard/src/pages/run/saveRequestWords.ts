import type { Message } from '../../api/client'

type SaveRequest = Message<'SaveRequestInfo'>

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

/** What is announced after asking: whether this made a request, or one was waiting already. */
export function askedWords(before: SaveRequest | undefined, after: SaveRequest): string {
  if (before?.attempt_id === after.attempt_id && before.number === after.number) {
    return 'A checkpoint has been asked for already; one request is enough.'
  }
  return 'Asked for a checkpoint: training takes it up at its next step.'
}
