import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { mintedQuery, revokeToken, TOKENS_KEY } from '../../api/tokens'
import { useSignedIn } from '../../app/signedIn'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Loaded } from '../../components/Loaded'
import { useAction } from '../../components/useAction'
import { When } from '../../components/When'
import styles from './access.module.css'

export interface RevokeTokenDialogProps {
  token: Message<'TokenInfo'>
  onClose: () => void
}

/** Revokes a token, after telling what goes with it. */
export function RevokeTokenDialog({ token, onClose }: RevokeTokenDialogProps): ReactNode {
  const mine = useSignedIn().token.id === token.id
  const minted = useQuery(mintedQuery(token.id))
  const revoke = useAction(() => revokeToken(token.id), {
    done: `Token ${token.name} is revoked.`,
    invalidates: [TOKENS_KEY],
  })
  return (
    <ConfirmDialog
      title={`Revoke ${token.name}?`}
      confirmLabel="Revoke token"
      onConfirm={revoke.run}
      onClose={onClose}
      {...(mine ? { typeToConfirm: token.name } : {})}
    >
      <p>
        Whoever holds <code>{token.prefix}…</code> is refused at once, on every replica within a second; jobs that save
        with it fail. It cannot be undone. It was{' '}
        {token.last_used_at === null ? 'never used' : <LastUsed at={token.last_used_at} />}.
      </p>
      {mine && <p className={styles.warning}>You are signed in with this token: this ends your sign-in too.</p>}
      <Loaded query={minted}>
        {({ items, next_cursor }) => <Minted tokens={items} more={next_cursor !== null} parent={token.id} />}
      </Loaded>
    </ConfirmDialog>
  )
}

function LastUsed({ at }: { at: string }): ReactNode {
  return (
    <>
      last used <When time={at} />
    </>
  )
}

interface MintedProps {
  tokens: readonly Message<'TokenInfo'>[]
  more: boolean
  parent: string
}

function Minted({ tokens, more, parent }: MintedProps): ReactNode {
  if (tokens.length === 0) return <p>It minted no token for jobs that is still in use.</p>
  return (
    <div>
      <p>
        {more ? `More than ${tokens.length} tokens` : tokens.length === 1 ? 'One token' : `${tokens.length} tokens`}{' '}
        that it minted for jobs {tokens.length === 1 && !more ? 'goes' : 'go'} with it:
      </p>
      <ul className={styles.minteds}>
        {tokens.map((token) => (
          <li key={token.id}>
            {token.name}, run {token.project}/{token.run}, <code>{token.prefix}…</code>
          </li>
        ))}
      </ul>
      {more && (
        <Link to="/access" search={{ parent }}>
          All of them
        </Link>
      )}
    </div>
  )
}
