import type { Message } from '../../api/client'

export type TokenState = 'living' | 'expired' | 'revoked'

const SOON_MILLISECONDS = 7 * 86_400_000

/** Whether a token can still be used. A revoked one stays revoked, however long ago it would have expired. */
export function tokenState(token: Pick<Message<'TokenInfo'>, 'expires_at' | 'revoked_at'>, now: Date): TokenState {
  if (token.revoked_at !== null) return 'revoked'
  return token.expires_at !== null && Date.parse(token.expires_at) <= now.getTime() ? 'expired' : 'living'
}

/** Whether a usable token expires within a week, when it is time to make the next. */
export function expiresSoon(token: Pick<Message<'TokenInfo'>, 'expires_at' | 'revoked_at'>, now: Date): boolean {
  if (tokenState(token, now) !== 'living' || token.expires_at === null) return false
  return Date.parse(token.expires_at) - now.getTime() < SOON_MILLISECONDS
}
