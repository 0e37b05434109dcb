import { Link } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Button } from '../../components/Button'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { StateBadge } from '../../components/StateBadge'
import { Tag } from '../../components/Tag'
import { useNow } from '../../components/useNow'
import { When } from '../../components/When'
import styles from './access.module.css'
import { Reach } from './Reach'
import { RevokeTokenDialog } from './RevokeTokenDialog'
import { expiresSoon, tokenState } from './tokenState'

type Token = Message<'TokenInfo'>

/** Tokens, newest first. Of each its first characters are shown, by which its holder knows it. */
export function TokensTable({ tokens }: { tokens: readonly Token[] }): ReactNode {
  const now = useNow()
  const [revoking, setRevoking] = useState<Token | null>(null)
  const columns: readonly Column<Token>[] = [
    { id: 'name', header: 'Name', wide: true, cell: (token) => <Name token={token} /> },
    { id: 'prefix', header: 'Begins with', cell: ({ prefix }) => <code>{prefix}…</code> },
    {
      id: 'scope',
      header: 'Scope',
      cell: ({ scope }) => (
        <span className={styles.whole}>
          <Tag tone={scope === 'admin' ? 'accent' : 'plain'}>{scope}</Tag>
        </span>
      ),
    },
    { id: 'reach', header: 'Sees', cell: (token) => <Reach token={token} /> },
    { id: 'state', header: 'State', cell: (token) => <StateBadge state={tokenState(token, now)} /> },
    { id: 'expires', header: 'Expires', cell: (token) => <Expiry token={token} soon={expiresSoon(token, now)} /> },
    {
      id: 'used',
      header: 'Last used',
      cell: ({ last_used_at }) => (last_used_at === null ? 'never' : <When time={last_used_at} />),
    },
    { id: 'created', header: 'Created', cell: ({ created_at }) => <When time={created_at} /> },
    {
      id: 'actions',
      header: 'Actions',
      cell: (token) => (
        <Button
          kind="danger"
          label={`Revoke ${token.name}`}
          reason={token.revoked_at === null ? undefined : 'It is revoked already.'}
          onClick={() => {
            setRevoking(token)
          }}
        >
          Revoke
        </Button>
      ),
    },
  ]
  return (
    <>
      <DataTable
        caption="Tokens, newest first"
        columns={columns}
        rows={tokens}
        rowKey={({ id }) => id}
        empty={<Empty title="No token matches" command="shardkeep token create --scope write --project my-project" />}
      />
      {revoking !== null && (
        <RevokeTokenDialog
          token={revoking}
          onClose={() => {
            setRevoking(null)
          }}
        />
      )}
    </>
  )
}

function Name({ token }: { token: Token }): ReactNode {
  return (
    <span className={styles.name}>
      {token.name}
      {token.parent_id && (
        <Link to="/access" search={{ parent: token.parent_id, all: true }} className={styles.minted}>
          minted for jobs
        </Link>
      )}
    </span>
  )
}

function Expiry({ token, soon }: { token: Token; soon: boolean }): ReactNode {
  if (token.expires_at === null) return 'never'
  return (
    <span className={soon ? styles.soon : undefined}>
      <When time={token.expires_at} />
      {soon && ', soon'}
    </span>
  )
}
