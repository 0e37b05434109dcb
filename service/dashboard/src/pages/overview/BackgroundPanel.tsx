import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { DataTable, type Column } from '../../components/DataTable'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { counted } from '../../format/numbers'
import styles from './OverviewPage.module.css'

type Worker = Message<'WorkerInfo'>

export interface BackgroundPanelProps {
  workers: readonly Worker[]
  outboxEntries: number
  /** The service's own time: leases are on it. */
  now: string
}

/** The tasks of the worker, and the records that wait to be written to the store. */
export function BackgroundPanel({ workers, outboxEntries, now }: BackgroundPanelProps): ReactNode {
  const columns: readonly Column<Worker>[] = [
    { id: 'task', header: 'Task', cell: ({ task }) => task.replaceAll('_', ' ') },
    { id: 'state', header: 'State', cell: (worker) => <WorkerState worker={worker} now={now} /> },
    { id: 'holder', header: 'Worker', cell: ({ holder }) => <code>{holder ?? '–'}</code> },
    { id: 'lease', header: 'Lease until', align: 'end', cell: ({ lease_until: until }) => <When time={until} /> },
  ]
  return (
    <Panel title="Worker">
      <div className={styles.stack}>
        <p>
          {outboxEntries === 0
            ? 'Outbox: empty, every commit record is in the store.'
            : `Outbox: ${counted(outboxEntries, 'record')} still to be written to the store.`}
        </p>
        <DataTable
          caption="Tasks of the worker"
          columns={columns}
          rows={workers}
          rowKey={({ task }) => task}
          empty={<NoLeases />}
        />
      </div>
    </Panel>
  )
}

function NoLeases(): ReactNode {
  return (
    <p className={styles.none}>
      No leases. A service on SQLite runs these tasks itself; beside PostgreSQL, start{' '}
      <code>shardkeep-service worker</code>.
    </p>
  )
}

function WorkerState({ worker, now }: { worker: Worker; now: string }): ReactNode {
  const held = worker.lease_until !== null && Date.parse(worker.lease_until) > Date.parse(now)
  return held ? <StateBadge state="running" label="held" /> : <StateBadge state="waiting" label="nobody holds it" />
}
