import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { attemptsQuery, latestQuery } from '../../api/run'
import { DataTable } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Identifier } from '../../components/Identifier'
import { LinkButton } from '../../components/LinkButton'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { Panel } from '../../components/Panel'
import { Tag } from '../../components/Tag'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import { NothingSaved } from './NothingSaved'
import { PassedOverTable } from './PassedOverTable'
import styles from './run.module.css'
import type { ViewProps } from './views'

type Attempt = Message<'AttemptInfo'>

const PAGE = 50

/** The attempts and what each resumed from; what the next one would resume from, and what it would pass over. */
export function AttemptsView({ name, run, search, onChange }: ViewProps): ReactNode {
  const cursor = search.attempts
  const attempts = useQuery(attemptsQuery(name, { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) }))
  const latest = useQuery(latestQuery(name))
  return (
    <div className={styles.stack}>
      <Panel title="What the next attempt resumes from">
        <Loaded query={latest}>{(answer) => <Next latest={answer} run={run} />}</Loaded>
      </Panel>
      <h2>Attempts</h2>
      <Loaded query={attempts}>
        {({ items, next_cursor }) => (
          <>
            <AttemptsTable attempts={items} run={run} />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
              onCursor={(following) => {
                onChange({ attempts: following })
              }}
            />
          </>
        )}
      </Loaded>
    </div>
  )
}

function Next({ latest, run }: { latest: Message<'LatestAnswer'>; run: Message<'RunInfo'> }): ReactNode {
  const { checkpoint, passed_over: passedOver } = latest
  return (
    <div className={styles.stack}>
      {checkpoint === null ? (
        <NothingSaved run={run} title="No checkpoint can be resumed from" />
      ) : (
        <p>
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint: checkpoint.id }}>
            Step {count(checkpoint.step)}
          </Link>{' '}
          of attempt {checkpoint.attempt_number}, committed <When time={checkpoint.committed_at} />.
          {passedOver.length === 0 ? ' Nothing newer is passed over.' : ' Newer ones are passed over:'}
        </p>
      )}
      {passedOver.length > 0 && <PassedOverTable passedOver={passedOver} />}
    </div>
  )
}

function AttemptsTable({ attempts, run }: { attempts: readonly Attempt[]; run: Message<'RunInfo'> }): ReactNode {
  return (
    <DataTable<Attempt>
      caption="Attempts, newest first"
      rows={attempts}
      rowKey={({ id }) => id}
      empty={
        <Empty title="Nothing has trained this run yet">
          <p>An attempt begins when a training job resumes.</p>
          <LinkButton
            to="/runs/$project/$run"
            params={{ project: run.project, run: run.name }}
            search={{ view: 'resume' }}
          >
            What to write into its script
          </LinkButton>
        </Empty>
      }
      columns={[
        {
          id: 'number',
          header: 'Attempt',
          cell: ({ number, current }) => (
            <span className={styles.numbered}>
              {number}
              {current && <Tag tone="accent">current</Tag>}
            </span>
          ),
        },
        { id: 'began', header: 'Began', cell: ({ created_at }) => <When time={created_at} /> },
        { id: 'resumed', header: 'Resumed from', wide: true, cell: (attempt) => <ResumedFrom attempt={attempt} /> },
        { id: 'world', header: 'Ranks', align: 'end', cell: ({ world_size }) => count(world_size) },
        {
          id: 'labels',
          header: 'Labels',
          wide: true,
          cell: ({ labels }) => (
            <span className={styles.words}>
              {Object.entries(labels).map(([label, value]) => (
                <Tag key={label}>
                  {label}={value}
                </Tag>
              ))}
            </span>
          ),
        },
        { id: 'id', header: 'Id', cell: ({ id }) => <Identifier value={id} label="attempt id" short /> },
      ]}
    />
  )
}

function ResumedFrom({ attempt }: { attempt: Attempt }): ReactNode {
  const { decision, resumed_step: step, resumed_attempt: other } = attempt
  if (decision === null) return 'not decided yet'
  if (decision === 'fresh') return 'nothing: it began anew'
  return (
    <>
      <Link to="/checkpoints/$checkpoint" params={{ checkpoint: decision }}>
        {step === null || step === undefined ? decision : `step ${count(step)}`}
      </Link>
      {other !== null && other !== undefined && ` of attempt ${other}`}
    </>
  )
}
