import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { flagsOf } from '../../charts/marks'
import { Bytes } from '../../components/Bytes'
import { StateBadge } from '../../components/StateBadge'
import { Stat, Stats } from '../../components/Stat'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import { rankList } from '../../format/ranks'

/** A checkpoint at a glance. */
export function CheckpointFigures({ checkpoint }: { checkpoint: Message<'CheckpointInfo'> }): ReactNode {
  const { project, run, attempt_number: attempt } = checkpoint
  const flags = flagsOf(checkpoint).filter((flag) => flag !== 'quarantined')
  return (
    <Stats>
      <Stat
        name="State"
        value={
          <>
            <StateBadge state={checkpoint.state} /> {checkpoint.quarantined && <StateBadge state="quarantined" />}
          </>
        }
        note={
          <>
            {checkpoint.committed_at === null ? 'opened ' : 'committed '}
            <When time={checkpoint.committed_at ?? checkpoint.opened_at} />
            {flags.length > 0 && `, ${flags.join(', ')}`}
          </>
        }
      />
      <Stat
        name="Step"
        value={count(checkpoint.step)}
        note={
          <Link to="/runs/$project/$run" params={{ project, run }} search={{ attempt: checkpoint.attempt_id }}>
            attempt {attempt}
          </Link>
        }
      />
      <Stat
        name="Ranks arrived"
        value={`${count(checkpoint.arrived)} of ${count(checkpoint.world_size)}`}
        note={missing(checkpoint)}
      />
      <Stat name="Holds" value={<Bytes value={checkpoint.raw_bytes} />} note={<>brought <Bytes value={checkpoint.new_bytes} /></>} />
    </Stats>
  )
}

function missing({ missing_ranks: ranks, state }: Message<'CheckpointInfo'>): string {
  if (ranks.length === 0) return 'none is missing'
  return `${rankList(ranks, 4)} ${state === 'open' ? 'not there yet' : 'missing'}`
}
