import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import type { Place } from '../../api/retention'
import { DataTable, type Column } from '../../components/DataTable'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import styles from './retention.module.css'

type Verdict = Message<'RetentionVerdict'>

const SHORT = 12

export interface VerdictsTableProps {
  verdicts: readonly Verdict[]
  place: Place
  /** Whether they were carried out. */
  applied: boolean
  /** Shown in place of rows where there are none. */
  empty: ReactNode
}

/** A verdict on each checkpoint, with every reason. */
export function VerdictsTable({ verdicts, place, applied, empty }: VerdictsTableProps): ReactNode {
  const columns: Column<Verdict>[] = [
    {
      id: 'checkpoint',
      header: 'Checkpoint',
      cell: ({ checkpoint_id: checkpoint }) => (
        <Link to="/checkpoints/$checkpoint" params={{ checkpoint }} title={checkpoint} className={styles.checkpoint}>
          <code>{checkpoint.slice(0, SHORT)}…</code>
        </Link>
      ),
    },
    {
      id: 'verdict',
      header: 'Verdict',
      cell: ({ kept }) =>
        kept ? (
          <StateBadge state="kept" />
        ) : (
          <StateBadge state="deleted" label={applied ? 'deleted' : 'to be deleted'} />
        ),
    },
    { id: 'step', header: 'Step', align: 'end', cell: ({ step }) => count(step) },
    {
      id: 'reasons',
      header: 'Why',
      wide: true,
      cell: ({ reasons }) => (
        <ul className={styles.reasons}>
          {reasons.map(({ code, text }) => (
            <li key={`${code} ${text}`} title={code}>
              {text}
            </li>
          ))}
        </ul>
      ),
    },
    { id: 'committed', header: 'Committed', cell: ({ committed_at: at }) => <When time={at} /> },
    { id: 'line', header: 'On the line', cell: ({ on_line: onLine }) => (onLine ? 'yes' : 'no') },
  ]
  if (place.run === undefined) {
    columns.splice(1, 0, {
      id: 'run',
      header: 'Run',
      cell: ({ run }) => (
        <Link to="/runs/$project/$run" params={{ project: place.project, run }} className={styles.run}>
          {run}
        </Link>
      ),
    })
  }
  return (
    <DataTable
      caption={applied ? 'Checkpoints that were deleted' : 'Verdicts, those to be deleted first'}
      columns={columns}
      rows={verdicts}
      rowKey={({ checkpoint_id: id }) => id}
      empty={empty}
    />
  )
}
