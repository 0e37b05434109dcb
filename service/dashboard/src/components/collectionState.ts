import type { Message } from '../api/client'

/** The state of collection for a badge. Stopped comes first: it is what somebody must act on. */
export function collectionState(collection: Message<'CollectionInfo'>): { state: string; label: string } {
  if (collection.stopped_because !== null) return { state: 'stopped', label: 'stopped' }
  if (collection.running) return { state: 'running', label: 'a pass is running' }
  if (collection.ended_at === null) return { state: 'waiting', label: 'no pass yet' }
  return { state: 'done', label: 'up to date' }
}
