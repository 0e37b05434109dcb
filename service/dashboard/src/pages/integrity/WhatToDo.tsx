import type { ReactNode } from 'react'
import { Panel } from '../../components/Panel'
import { Snippet } from '../../components/Snippet'
import styles from './integrity.module.css'

/** What an operator does about damage, as docs/recovery.md says it. */
export function WhatToDo(): ReactNode {
  return (
    <Panel title="What to do">
      <ol className={styles.steps}>
        <li>
          Nothing is urgent for training: <code>resume</code> passes over quarantined checkpoints, and the next save
          that contains the same bytes sends them again, which heals every checkpoint that names them.
        </li>
        <li>
          See how far the damage goes. This reads everything that is stored:
          <Snippet text="shardkeep-service scrub --all" label="command" />
        </li>
        <li>
          Where the bucket keeps versions or has a replica, bring the objects back under the same keys and scrub again:
          what is whole again is released.
        </li>
        <li>
          Checkpoints that stay damaged can be deleted on their own pages. They are loadable by id as far as they are
          whole.
        </li>
      </ol>
    </Panel>
  )
}
