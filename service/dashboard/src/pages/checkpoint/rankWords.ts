import type { RankState } from './search'

/**
 * A rank's state in words. Of a save that is over it is not known whether a rank that did not arrive had begun to send, so
 * it is not called absent then.
 */
export function rankWords(state: RankState, running: boolean): string {
  return state === 'absent' && !running ? 'did not arrive' : state
}
