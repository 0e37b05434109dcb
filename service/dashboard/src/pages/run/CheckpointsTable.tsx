import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { flagsOf } from '../../charts/marks'
import { Bytes } from '../../components/Bytes'
import { DataTable } from '../../components/DataTable'
import { Duration } from '../../components/Duration'
import { Identifier } from '../../components/Identifier'
import { StateBadge } from '../../components/StateBadge'
import { Tag } from '../../components/Tag'
import { When } from '../../components/When'
import { count, metric } from '../../format/numbers'
import { secondsBetween } from '../../format/times'
import styles from './run.module.css'

type Checkpoint = Message<'CheckpointSummary'>

const MOST_METRICS = 1

export function CheckpointsTable({ rows, empty }: { rows: readonly Checkpoint[]; empty: ReactNode }): ReactNode {
  return (
    <DataTable<Checkpoint>
      caption="Checkpoints of the run, newest first"
      rows={rows}
      rowKey={({ id }) => id}
      empty={empty}
      columns={[
        {
          id: 'step',
          header: 'Step',
          cell: ({ id, step }) => (
            <Link to="/checkpoints/$checkpoint" params={{ checkpoint: id }}>
              {count(step)}
            </Link>
          ),
        },
        { id: 'state', header: 'State', cell: (checkpoint) => <States checkpoint={checkpoint} /> },
        { id: 'attempt', header: 'Attempt', align: 'end', cell: ({ attempt_number }) => attempt_number },
        { id: 'world', header: 'Ranks', align: 'end', cell: ({ world_size }) => count(world_size) },
        { id: 'when', header: 'Committed', cell: ({ committed_at }) => <When time={committed_at} /> },
        { id: 'took', header: 'Took', align: 'end', cell: (checkpoint) => <Duration seconds={taken(checkpoint)} /> },
        { id: 'raw', header: 'Holds', align: 'end', cell: ({ raw_bytes }) => <Bytes value={raw_bytes} /> },
        { id: 'new', header: 'Brought', align: 'end', cell: ({ new_bytes }) => <Bytes value={new_bytes} /> },
        { id: 'metrics', header: 'Metrics', wide: true, cell: ({ metrics }) => metricsText(metrics) },
        { id: 'id', header: 'Id', cell: ({ id }) => <ShortId id={id} /> },
      ]}
    />
  )
}

/** The state, and what the checkpoint is beside it. */
function States({ checkpoint }: { checkpoint: Checkpoint }): ReactNode {
  return (
    <span className={styles.words}>
      <StateBadge state={checkpoint.state} />
      {flagsOf(checkpoint).map((flag) =>
        flag === 'quarantined' ? <StateBadge key={flag} state={flag} /> : <Tag key={flag}>{flag}</Tag>,
      )}
      {(checkpoint.tags ?? []).map((tag) => (
        <Tag key={tag} tone="accent">
          {tag}
        </Tag>
      ))}
    </span>
  )
}

function taken({ opened_at, committed_at }: Checkpoint): number | null {
  return secondsBetween(opened_at, committed_at)
}

function metricsText(metrics: Checkpoint['metrics']): string {
  const entries = Object.entries(metrics).filter(([name]) => !name.endsWith('@rank0'))
  const shown = entries.slice(0, MOST_METRICS).map(([name, value]) => `${name} ${metric(value)}`)
  return shown.length === 0 ? '–' : shown.join(', ') + (entries.length > MOST_METRICS ? ', …' : '')
}

function ShortId({ id }: { id: string }): ReactNode {
  return (
    <span className={styles.whole}>
      <Identifier value={id} label="checkpoint id" short />
    </span>
  )
}
