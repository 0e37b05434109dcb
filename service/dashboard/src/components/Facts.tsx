import type { ReactNode } from 'react'
import styles from './Facts.module.css'

/** Names and what they are, as a list of pairs. */
export function Facts({ facts }: { facts: readonly { name: string; value: ReactNode }[] }): ReactNode {
  return (
    <dl className={styles.facts}>
      {facts.map(({ name, value }) => (
        <div key={name} className={styles.fact}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}
