import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { TableAlternative } from '../../charts/TableAlternative'
import { Bytes } from '../../components/Bytes'
import { DataTable, type Column } from '../../components/DataTable'
import { Panel } from '../../components/Panel'
import { When } from '../../components/When'
import { humanBytes } from '../../format/bytes'
import { GrowthChart } from './GrowthChart'
import styles from './OverviewPage.module.css'
import type { Window } from './search'
import { growth, merged, sum, type Stretch } from './stretches'

const MOST_ROWS = 30

export interface GrowthPanelProps {
  overview: Message<'OverviewInfo'>
  window: Window
}

const COLUMNS: readonly Column<Stretch>[] = [
  { id: 'start', header: 'From', cell: ({ start }) => <When time={start} absolute /> },
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
            rows={merged(overview.saves, MOST_ROWS).saves.reverse()}
            rowKey={({ start }) => start}
            empty={null}
          />
        </TableAlternative>
      </div>
    </Panel>
  )
}
