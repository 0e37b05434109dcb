import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { DataTable } from '../../components/DataTable'
import { StateBadge } from '../../components/StateBadge'
import { count } from '../../format/numbers'
import { rankList } from '../../format/ranks'
import styles from './run.module.css'

type PassedOver = Message<'PassedOver'>

/** Newer checkpoints that resuming passes over, and why. */
export function PassedOverTable({ passedOver }: { passedOver: readonly PassedOver[] }): ReactNode {
  return (
    <DataTable<PassedOver>
      caption="Newer checkpoints that are passed over, and why"
      rows={passedOver}
      rowKey={({ checkpoint_id }) => checkpoint_id}
      empty={null}
      columns={[
        {
          id: 'step',
          header: 'Step',
          cell: ({ checkpoint_id, step }) => (
            <Link to="/checkpoints/$checkpoint" params={{ checkpoint: checkpoint_id }}>
              {count(step)}
            </Link>
          ),
        },
        { id: 'state', header: 'State', cell: ({ state }) => <StateBadge state={state} /> },
        { id: 'code', header: 'Why', cell: ({ code }) => <code>{code}</code> },
        { id: 'reason', header: 'In words', wide: true, cell: ({ reason }) => <div className={styles.narrow}>{reason}</div> },
        {
          id: 'missing',
          header: 'Missing',
          cell: ({ missing_ranks: missing }) => (missing === undefined || missing.length === 0 ? '–' : rankList(missing)),
        },
      ]}
    />
  )
}
