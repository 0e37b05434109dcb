import { Link } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import type { Place } from '../../api/retention'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Empty } from '../../components/Empty'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { RemoveDialog } from './RemoveDialog'
import styles from './retention.module.css'
import { placeText, ruleTexts } from './rules'

export interface PolicyPanelProps {
  place: Place
  answer: Message<'RetentionAnswer'>
}

/** The policy in force, where it comes from, and whether anything is deleted by it at all. */
export function PolicyPanel({ place, answer }: PolicyPanelProps): ReactNode {
  const [removing, setRemoving] = useState(false)
  const refusal = useRefusal('admin')
  const { in_force: inForce, policy, paused } = answer
  const remove = policy !== null && (
    <Button
      kind="danger"
      reason={refusal}
      onClick={() => {
        setRemoving(true)
      }}
    >
      Remove policy
    </Button>
  )
  return (
    <>
      {paused != null && (
        <div role="note" className={styles.paused}>
          <StateBadge state="waiting" label="retention is paused" />
          <p>{paused}</p>
          <p>
            No policy deletes anything until an operator runs <code>shardkeep-service resume-retention</code>.
          </p>
        </div>
      )}
      <Panel title="Policy in force" actions={remove}>
        {inForce === null ? (
          <Empty
            title="No policy: everything is kept"
            command={`shardkeep retention set ${placeText(place)} --keep-last 3`}
          >
            Write one below, or on the command line:
          </Empty>
        ) : (
          <div className={styles.stack}>
            <p>A checkpoint is kept if any of these keeps it:</p>
            <ul className={styles.rules}>
              {ruleTexts(inForce.rules).map((text) => (
                <li key={text}>{text}</li>
              ))}
            </ul>
            <p className={styles.soft}>
              <Origin place={place} inForce={inForce} /> Set by {inForce.set_by} <When time={inForce.set_at} />.
            </p>
          </div>
        )}
      </Panel>
      {removing && (
        <RemoveDialog
          place={place}
          seen={answer.version}
          onClose={() => {
            setRemoving(false)
          }}
        />
      )}
    </>
  )
}

function Origin({ place, inForce }: { place: Place; inForce: Message<'RetentionPolicyInfo'> }): ReactNode {
  if (place.run === undefined) return 'For all runs of the project that have no policy of their own.'
  if (inForce.run !== null) return 'The run’s own policy: it stands in place of the project’s.'
  return (
    <>
      The run has no policy of its own; this is{' '}
      <Link to="/retention/$project" params={{ project: place.project }}>
        that of project {place.project}
      </Link>
      .
    </>
  )
}
