import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { progressOf, rateOf, remainingSeconds, type Sample } from '../../api/saveRates'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Bytes } from '../../components/Bytes'
import { DataTable } from '../../components/DataTable'
import { Duration } from '../../components/Duration'
import { Meter } from '../../components/Meter'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { humanBytes, humanRate } from '../../format/bytes'
import { humanDuration } from '../../format/durations'
import { count, percent } from '../../format/numbers'
import styles from './saves.module.css'

type Save = Message<'SaveInProgress'>

/** From how long a silence on it is worth a look: ranks beat every 30 s. */
const LATE_SECONDS = 60

export interface SavesTableProps {
  saves: readonly Save[]
  samples: Readonly<Record<string, readonly Sample[]>>
  empty: ReactNode
  /** The checkpoint whose ranks are shown. */
  selected: string | undefined
  onSelect: (checkpoint: string | undefined) => void
  onAbort: (checkpoint: Message<'CheckpointSummary'>) => void
}

/** The saves in progress, with how fast each goes. */
export function SavesTable({ saves, samples, empty, selected, onSelect, onAbort }: SavesTableProps): ReactNode {
  const refused = useRefusal('write')
  return (
    <DataTable<Save>
      caption="Saves in progress"
      rows={saves}
      rowKey={({ checkpoint }) => checkpoint.id}
      empty={empty}
      {...(selected === undefined ? {} : { selected })}
      columns={[
        { id: 'save', header: 'Save', cell: ({ checkpoint }) => <SaveName checkpoint={checkpoint} /> },
        {
          id: 'state',
          header: 'State',
          cell: ({ checkpoint }) => (
            <>
              <StateBadge state={checkpoint.state} />
              <div className={styles.soft}>
                began <When time={checkpoint.opened_at} />
              </div>
            </>
          ),
        },
        { id: 'ranks', header: 'Arrived', cell: (save) => <Arrivals save={save} /> },
        {
          id: 'progress',
          header: 'Progress',
          cell: (save) => <Progress save={save} samples={samples[save.checkpoint.id] ?? []} />,
        },
        {
          id: 'offered',
          header: 'Offered',
          align: 'end',
          cell: ({ offered_bytes, present_bytes }) => (
            <>
              <Bytes value={offered_bytes} />
              <div className={styles.soft}>
                <Bytes value={present_bytes} /> was there
              </div>
            </>
          ),
        },
        { id: 'rate', header: 'Rate', align: 'end', cell: ({ checkpoint }) => rateText(samples[checkpoint.id] ?? []) },
        { id: 'idle', header: 'Silence', align: 'end', cell: ({ idle_seconds }) => <Silence seconds={idle_seconds} /> },
        {
          id: 'actions',
          header: 'Actions',
          cell: ({ checkpoint }) => {
            const shown = checkpoint.id === selected
            const which = `step ${count(checkpoint.step)} of ${checkpoint.project}/${checkpoint.run}`
            return (
              <div className={styles.buttons}>
                <Button
                  label={`${shown ? 'Hide' : 'Show'} the ranks of ${which}`}
                  expanded={shown}
                  onClick={() => {
                    onSelect(shown ? undefined : checkpoint.id)
                  }}
                >
                  {shown ? 'Hide' : 'Ranks'}
                </Button>
                <Button
                  kind="danger"
                  label={`Abort the save of ${which}`}
                  reason={refused}
                  onClick={() => {
                    onAbort(checkpoint)
                  }}
                >
                  Abort
                </Button>
              </div>
            )
          },
        },
      ]}
    />
  )
}

function SaveName({ checkpoint }: { checkpoint: Message<'CheckpointSummary'> }): ReactNode {
  const { id, project, run, step } = checkpoint
  return (
    <>
      <Link to="/checkpoints/$checkpoint" params={{ checkpoint: id }}>
        Step {count(step)}
      </Link>{' '}
      of{' '}
      <Link to="/runs/$project/$run" params={{ project, run }}>
        {project}/{run}
      </Link>
    </>
  )
}

function Arrivals({ save }: { save: Save }): ReactNode {
  const { checkpoint, opened_ranks, arrived_ranks } = save
  const absent = checkpoint.world_size - opened_ranks
  return (
    <span className={styles.whole}>
      {count(arrived_ranks)} of {count(checkpoint.world_size)}
      {absent > 0 && <span className={styles.late}>, {count(absent)} absent</span>}
    </span>
  )
}

function Progress({ save, samples }: { save: Save; samples: readonly Sample[] }): ReactNode {
  const { offered_bytes: offered, named_bytes_before: expected } = save
  const share = progressOf(offered, expected)
  if (share === null || expected === null) return <span className={styles.soft}>no parent to compare with</span>
  const rest = remainingSeconds(offered, expected, rateOf(samples)?.offered ?? null)
  const left = rest === null ? '' : `, about ${humanDuration(rest)} left`
  return (
    <div className={styles.progress}>
      <Meter label={`${percent(share)} of its parent’s ${humanBytes(expected)}${left}`} value={share} max={1} text="" />
    </div>
  )
}

function Silence({ seconds }: { seconds: number }): ReactNode {
  if (seconds < LATE_SECONDS) return <Duration seconds={seconds} />
  return (
    <div className={styles.late}>
      <Duration seconds={seconds} />
      <div>late</div>
    </div>
  )
}

function rateText(samples: readonly Sample[]): string {
  const rate = rateOf(samples)
  return rate === null ? '–' : humanRate(rate.sent, 1)
}
