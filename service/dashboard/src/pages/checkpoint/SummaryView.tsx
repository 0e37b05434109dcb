import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { DataTable } from '../../components/DataTable'
import { Duration } from '../../components/Duration'
import { Empty } from '../../components/Empty'
import { Facts } from '../../components/Facts'
import { Identifier } from '../../components/Identifier'
import { Panel } from '../../components/Panel'
import { When } from '../../components/When'
import { humanRate } from '../../format/bytes'
import { count, metric, ratio } from '../../format/numbers'
import { secondsBetween } from '../../format/times'
import { AbortPanel } from './AbortPanel'
import { metricRows } from './metricRows'
import { plainText } from './plainText'
import { ReportPanel } from './ReportPanel'
import styles from './checkpoint.module.css'

type Checkpoint = Message<'CheckpointInfo'>

/** What is known of a checkpoint without looking into it. */
export function SummaryView({ checkpoint }: { checkpoint: Checkpoint }): ReactNode {
  const environment = Object.entries(checkpoint.environment)
  return (
    <div className={styles.stack}>
      {checkpoint.abort !== null && <AbortPanel abort={checkpoint.abort} />}
      <Panel title="What it is">
        <Facts facts={identity(checkpoint)} />
      </Panel>
      <Panel title="Size and time">
        <Facts facts={sizes(checkpoint)} />
      </Panel>
      {checkpoint.sequence !== null && (
        <>
          <h2>Metrics</h2>
          <Metrics checkpoint={checkpoint} />
          {checkpoint.report !== null && <ReportPanel report={checkpoint.report} />}
          <Panel title="Environment of rank 0">
            {environment.length === 0 ? (
              <Empty title="Nothing was told about it" />
            ) : (
              <Facts facts={environment.map(([name, value]) => ({ name, value: plainText(value) }))} />
            )}
          </Panel>
        </>
      )}
    </div>
  )
}

function Metrics({ checkpoint }: { checkpoint: Checkpoint }): ReactNode {
  return (
    <DataTable
      caption="Metrics"
      rows={metricRows(checkpoint.metrics)}
      rowKey={({ name }) => name}
      empty={<Empty title="It was saved without metrics">Give some with keeper.step(step, metrics=…).</Empty>}
      columns={[
        { id: 'name', header: 'Name', wide: true, cell: ({ name }) => <span className={styles.name}>{name}</span> },
        { id: 'mean', header: 'Mean over ranks', align: 'end', cell: ({ mean }) => metric(mean) },
        {
          id: 'rank0',
          header: 'Rank 0',
          align: 'end',
          cell: ({ rank0 }) => (rank0 === undefined ? '–' : metric(rank0)),
        },
      ]}
    />
  )
}

function identity(checkpoint: Checkpoint): { name: string; value: ReactNode }[] {
  const { id, parent_id: parent } = checkpoint
  return [
    { name: 'Checkpoint', value: <Identifier value={id} label="checkpoint id" /> },
    {
      name: 'Parent',
      value:
        parent === null ? (
          'none: nothing was committed on its line'
        ) : (
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint: parent }}>
            {parent}
          </Link>
        ),
    },
    { name: 'Attempt', value: <>{checkpoint.attempt_number}, <Identifier value={checkpoint.attempt_id} label="attempt id" short /></> },
    { name: 'Save', value: `number ${count(checkpoint.save)} of the attempt` },
    { name: 'Sequence', value: checkpoint.sequence === null ? 'never committed' : count(checkpoint.sequence) },
    { name: 'Line', value: lineOf(checkpoint) },
    ...(checkpoint.pinned ? [{ name: 'Pinned', value: checkpoint.pin_reason === null || checkpoint.pin_reason === '' ? 'yes, no reason given' : checkpoint.pin_reason }] : []),
    ...(checkpoint.deleted_at === null
      ? []
      : [
          { name: 'Deleted', value: <When time={checkpoint.deleted_at} absolute /> },
          { name: 'Deleted because', value: checkpoint.deletion_reason ?? 'somebody deleted it' },
        ]),
    { name: 'Version', value: count(checkpoint.version) },
  ]
}

function lineOf(checkpoint: Checkpoint): string {
  if (checkpoint.sequence === null) return 'on none: it was never committed'
  return checkpoint.on_line ? 'on the line of the current attempt' : 'off the line of the current attempt'
}

function restText(stored: number | null, brought: number | null): string {
  if (stored === null || brought === null) return ''
  return brought < stored ? ', the rest was there' : ', nothing of it was there'
}

function sizes(checkpoint: Checkpoint): { name: string; value: ReactNode }[] {
  if (checkpoint.sequence === null) return [{ name: 'Opened', value: <When time={checkpoint.opened_at} absolute /> }]
  const { raw_bytes: raw, stored_bytes: stored, new_bytes: brought } = checkpoint
  const seconds = secondsBetween(checkpoint.opened_at, checkpoint.committed_at)
  return [
    { name: 'Holds', value: <><Bytes value={raw} /> before compression</> },
    { name: 'Names in the store', value: <><Bytes value={stored} />{raw !== null && stored !== null && `, ${ratio(raw, stored)} smaller`}</> },
    { name: 'Brought to the store', value: <><Bytes value={brought} />{restText(stored, brought)}</> },
    { name: 'Tensors', value: checkpoint.tensors === null ? '–' : count(checkpoint.tensors) },
    { name: 'Opened', value: <When time={checkpoint.opened_at} absolute /> },
    { name: 'Committed', value: <When time={checkpoint.committed_at} absolute /> },
    { name: 'Took', value: <Duration seconds={seconds} /> },
    { name: 'State saved a second', value: seconds === null || raw === null ? '–' : humanRate(raw, seconds) },
  ]
}
