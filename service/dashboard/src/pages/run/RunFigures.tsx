import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { StateBadge } from '../../components/StateBadge'
import { Stat, Stats } from '../../components/Stat'
import { Bytes } from '../../components/Bytes'
import { When } from '../../components/When'
import { count } from '../../format/numbers'

/** A run at a glance. */
export function RunFigures({ run }: { run: Message<'RunInfo'> }): ReactNode {
  const { latest } = run
  return (
    <Stats>
      <Stat name="State" value={run.state == null ? '–' : <StateBadge state={run.state} />} note={<>made <When time={run.created_at} /></>} />
      <Stat
        name="Last committed step"
        value={
          latest === null ? (
            '–'
          ) : (
            <Link to="/checkpoints/$checkpoint" params={{ checkpoint: latest.id }}>
              {count(latest.step)}
            </Link>
          )
        }
        note={
          latest === null ? (
            'nothing is committed'
          ) : (
            <>
              <When time={latest.committed_at} />, holds <Bytes value={latest.raw_bytes} />
            </>
          )
        }
      />
      <Stat
        name="Committed"
        value={count(run.committed_checkpoints)}
        note={`of ${count(run.checkpoints)} checkpoints`}
      />
      <Stat
        name="Attempts"
        value={count(run.attempts)}
        note={latest === null ? 'none has committed' : `number ${latest.attempt_number} committed last`}
      />
    </Stats>
  )
}
