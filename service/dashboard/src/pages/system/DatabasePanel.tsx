import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { Facts } from '../../components/Facts'
import { Meter } from '../../components/Meter'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { count } from '../../format/numbers'

const BUSY_FROM = 0.9

/** The catalogue's database: whether its schema is the newest, how large it is, and how many connections are taken. */
export function DatabasePanel({ database }: { database: Message<'DatabaseInfo'> }): ReactNode {
  const { connections_in_use: used, connections_limit: limit } = database
  return (
    <Panel title="Database">
      <Facts
        facts={[
          { name: 'Kind', value: `${database.kind} ${database.version}` },
          { name: 'Size', value: <Bytes value={database.size_bytes} /> },
          { name: 'Revision', value: <Revision database={database} /> },
          {
            name: 'Connections',
            value: (
              <Meter
                label="In use"
                value={used}
                max={limit}
                text={`${count(used)} of ${count(limit)}`}
                warnAt={BUSY_FROM}
              />
            ),
          },
        ]}
      />
    </Panel>
  )
}

function Revision({ database }: { database: Message<'DatabaseInfo'> }): ReactNode {
  const { revision, newest_revision: newest } = database
  if (revision === newest) {
    return (
      <>
        <StateBadge state="passed" label="newest" /> <code>{newest}</code>
      </>
    )
  }
  return (
    <>
      <StateBadge state="failed" label="not the newest" /> <code>{revision ?? 'none'}</code>, the newest is{' '}
      <code>{newest}</code>: run <code>shardkeep-service migrate</code>
    </>
  )
}
