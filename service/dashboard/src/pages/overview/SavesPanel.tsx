import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { TableAlternative } from '../../charts/TableAlternative'
import { useWidth } from '../../charts/useWidth'
import { DataTable, type Column } from '../../components/DataTable'
import { Panel } from '../../components/Panel'
import { humanDuration } from '../../format/durations'
import { count, counted } from '../../format/numbers'
import { absoluteTime } from '../../format/times'
import styles from './OverviewPage.module.css'
import { SaveCountBars } from './SaveCountBars'
import type { Window } from './search'
import { merged, sum, type Stretch } from './stretches'

/** The least that a bar and its gap take, in pixels. */
const LEAST_BAR = 9

export interface SavesPanelProps {
  overview: Message<'OverviewInfo'>
  window: Window
}

const COLUMNS: readonly Column<Stretch>[] = [
  { id: 'start', header: 'From', cell: ({ start }) => absoluteTime(new Date(start)) },
  { id: 'committed', header: 'Committed', align: 'end', cell: ({ committed }) => count(committed) },
  { id: 'aborted', header: 'Failed', align: 'end', cell: ({ aborted }) => count(aborted) },
]

/** How many saves of the window were committed, and how many failed. */
export function SavesPanel({ overview, window }: SavesPanelProps): ReactNode {
  const [measure, width] = useWidth()
  const { committed, aborted } = sum(overview.saves)
  // As many bars as there is room for, none of them for less than an hour.
  const { saves, each } = merged(overview.saves, Math.min(window.hours, Math.floor(width / LEAST_BAR)))
  const stretch = each * overview.stretch_seconds
  return (
    <Panel title={stretch === 3600 ? 'Saves per hour' : `Saves per ${humanDuration(stretch)}`}>
      <div ref={measure} className={styles.stack}>
        <p>
          {window.label}: {counted(committed, 'save')} committed, {count(aborted)} failed.{' '}
          <Link to="/saves">Saves in progress</Link>
        </p>
        {width > 0 && <SaveCountBars saves={saves} stretchSeconds={stretch} width={width} />}
        <TableAlternative>
          <DataTable
            caption={`Saves, each row ${humanDuration(stretch)}`}
            columns={COLUMNS}
            rows={saves.filter(({ committed, aborted }) => committed + aborted > 0).reverse()}
            rowKey={({ start }) => start}
            empty={<p className={styles.none}>Nothing was saved in this window.</p>}
            limited
          />
        </TableAlternative>
      </div>
    </Panel>
  )
}
