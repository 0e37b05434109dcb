import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { TableAlternative } from '../../charts/TableAlternative'
import { Bytes } from '../../components/Bytes'
import { DataTable, type Column } from '../../components/DataTable'
import { Panel } from '../../components/Panel'
import { humanBytes } from '../../format/bytes'
import { absoluteTime } from '../../format/times'
import { GrowthChart } from './GrowthChart'
import styles from './OverviewPage.module.css'
import type { Window } from './search'
import { growth, sum, type Stretch } from './stretches'

export interface GrowthPanelProps {
  overview: Message<'OverviewInfo'>
  window: Window
}

const COLUMNS: readonly Column<Stretch>[] = [
  { id: 'start', header: 'From', cell: ({ start }) => absoluteTime(new Date(start)) },
  { id: 'raw', header: 'Logical', align: 'end', cell: (row) => <Bytes value={row.raw_bytes} /> },
  { id: 'new', header: 'Stored', align: 'end', cell: (row) => <Bytes value={row.new_bytes} /> },
]

/** What the commits of the window brought. */
export function GrowthPanel({ overview, window }: GrowthPanelProps): ReactNode {
  const { raw_bytes: raw, new_bytes: stored } = sum(overview.saves)
  return (
    <Panel title="Growth">
      <div className={styles.stack}>
        <p>
          {window.label}: commits brought {humanBytes(raw)} of state, of which {humanBytes(stored)} had to be stored.
        </p>
        <GrowthChart grown={growth(overview.saves, overview.stretch_seconds)} window={window} />
        <TableAlternative>
          <DataTable
            caption="What commits brought"
            columns={COLUMNS}
            rows={overview.saves.filter(({ raw_bytes: brought }) => brought > 0).reverse()}
            rowKey={({ start }) => start}
            empty={<p className={styles.none}>Nothing was committed in this window.</p>}
            limited
          />
        </TableAlternative>
      </div>
    </Panel>
  )
}
