import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Identifier } from '../../components/Identifier'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { Harmed } from './Harmed'
import styles from './integrity.module.css'

type Finding = Message<'FindingInfo'>

const KINDS: Record<Finding['kind'], string> = {
  chunk: 'chunk',
  manifest: 'manifest',
  index: 'index',
  commit_record: 'commit record',
}

const OBJECT: Column<Finding> = {
  id: 'object',
  header: 'Object',
  cell: ({ kind, digest, object_key }) => (
    <span className={styles.object}>
      {KINDS[kind]} <Identifier value={digest ?? object_key} label={digest === null ? 'object key' : 'digest'} short />
    </span>
  ),
}
const DAMAGE: Column<Finding> = { id: 'damage', header: 'State', cell: ({ damage }) => <StateBadge state={damage} /> }
const HARMED: Column<Finding> = {
  id: 'harmed',
  header: 'Checkpoints it harms',
  cell: ({ id, harmed }) => <Harmed finding={id} checkpoints={harmed} />,
}
const FOUND: Column<Finding> = { id: 'found', header: 'Found', cell: ({ found_at }) => <When time={found_at} /> }
const DETAIL: Column<Finding> = {
  id: 'detail',
  header: 'What was found',
  wide: true,
  cell: ({ detail, object_key }) => (
    <span className={styles.detail}>
      {detail}
      <br />
      <code>{object_key}</code>
    </span>
  ),
}
const RESOLVED: readonly Column<Finding>[] = [
  { id: 'resolved', header: 'Resolved', cell: ({ resolved_at }) => <When time={resolved_at} /> },
  {
    id: 'resolution',
    header: 'How',
    cell: ({ resolution }) => <span className={styles.detail}>{resolution ?? '–'}</span>,
  },
]

/** Stored objects that were found damaged or lost, newest first. */
export function FindingsTable({ findings, resolved }: { findings: readonly Finding[]; resolved: boolean }): ReactNode {
  return (
    <DataTable
      caption={resolved ? 'Resolved findings' : 'Open findings'}
      columns={[OBJECT, DAMAGE, FOUND, ...(resolved ? RESOLVED : []), HARMED, DETAIL]}
      rows={findings}
      rowKey={({ id }) => String(id)}
      empty={
        resolved ? (
          <Empty title="No finding was resolved">
            A finding is resolved once its object is whole again, or gone because nothing needed it any more.
          </Empty>
        ) : (
          <Empty title="Nothing is known to be damaged" command="shardkeep-service scrub">
            The worker scrubs all the time, at the rate its settings give. To have it done now:
          </Empty>
        )
      }
    />
  )
}
