import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { given } from '../../app/searchParams'
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
import { barSeconds, merged, sum, type Stretch } from './stretches'

/** The least that a bar and its gap take, in pixels. */
const LEAST_BAR = 9
const NAMES: Record<number, string> = { 3600: 'hour', 86_400: 'day' }

export interface SavesPanelProps {
  overview: Message<'OverviewInfo'>
  window: Window
  project: string | undefined
}

const COLUMNS: readonly Column<Stretch>[] = [
  { id: 'start', header: 'From', cell: ({ start }) => absoluteTime(new Date(start)) },
  { id: 'committed', header: 'Committed', align: 'end', cell: ({ committed }) => count(committed) },
  { id: 'aborted', header: 'Failed', align: 'end', cell: ({ aborted }) => count(aborted) },
]

/** How many saves of the window were committed, and how many failed. */
export function SavesPanel({ overview, window, project }: SavesPanelProps): ReactNode {
  const [measure, width] = useWidth()
  const { committed, aborted } = sum(overview.saves)
  const seconds = barSeconds(window.hours, Math.floor(width / LEAST_BAR))
  const saves = merged(overview.saves, seconds)
  return (
    <Panel title={`Saves per ${NAMES[seconds] ?? humanDuration(seconds)}`}>
      <div ref={measure} className={styles.stack}>
        <p>
          {window.label}: {counted(committed, 'save')} committed, {count(aborted)} failed.{' '}
          <Link to="/saves" search={given({ project })}>
            Saves in progress
          </Link>
        </p>
        {width > 0 && <SaveCountBars saves={saves} seconds={seconds} width={width} />}
        <TableAlternative>
          <DataTable
            caption={`Saves by ${NAMES[seconds] ?? humanDuration(seconds)}`}
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
