import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Facts } from '../../components/Facts'
import { Panel } from '../../components/Panel'
import { rankList } from '../../format/ranks'
import styles from './checkpoint.module.css'

/** Why it was aborted, and by or because of which ranks. */
export function AbortPanel({ abort }: { abort: Message<'AbortInfo'> }): ReactNode {
  const { ranks = [], tensors = [] } = abort
  return (
    <Panel title="Why it was aborted">
      <Facts
        facts={[
          { name: 'Reason', value: abort.reason },
          { name: 'Code', value: <code>{abort.code}</code> },
          ...(ranks.length === 0 ? [] : [{ name: 'Ranks', value: rankList(ranks) }]),
          ...(tensors.length === 0 ? [] : [{ name: 'Tensors', value: <Names names={tensors} /> }]),
        ]}
      />
    </Panel>
  )
}

/** Names one below the other. */
export function Names({ names }: { names: readonly string[] }): ReactNode {
  return (
    <ul className={styles.list}>
      {names.map((name) => (
        <li key={name}>
          <code>{name}</code>
        </li>
      ))}
    </ul>
  )
}
