import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Facts } from '../../components/Facts'
import { Identifier } from '../../components/Identifier'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { KINDS } from './storeKinds'
import styles from './system.module.css'

type Ability = Message<'ProbeFinding'>

const COLUMNS: readonly Column<Ability>[] = [
  { id: 'name', header: 'Ability', cell: ({ name }) => name.replaceAll('_', ' ') },
  { id: 'passed', header: 'Result', cell: ({ passed }) => <StateBadge state={passed ? 'passed' : 'failed'} /> },
  {
    id: 'detail',
    header: 'What the probe found',
    wide: true,
    cell: ({ detail }) => <span className={styles.detail}>{detail}</span>,
  },
]

/** The object store and what it was found able to do. */
export function StorePanel({ store }: { store: Message<'StoreInfo'> }): ReactNode {
  return (
    <Panel title="Object store">
      <div className={styles.stack}>
        <Facts
          facts={[
            { name: 'Kind', value: KINDS[store.kind] ?? store.kind },
            { name: 'Place', value: <Identifier value={store.place} label="place of the object store" /> },
            {
              name: 'Transfer',
              value: store.direct ? 'direct: clients talk to the store itself' : 'through this service',
            },
          ]}
        />
        <DataTable
          caption="Abilities of the object store"
          columns={COLUMNS}
          rows={store.abilities}
          rowKey={({ name }) => name}
          empty={
            <Empty title="A directory needs no probing to be used" command="shardkeep-service doctor">
              To try its durability, its free space and its file system all the same:
            </Empty>
          }
        />
      </div>
    </Panel>
  )
}
