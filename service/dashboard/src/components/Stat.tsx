import type { ReactNode } from 'react'
import styles from './Stat.module.css'

export interface StatProps {
  name: string
  value: ReactNode
  /** One line below: what it is made of, or where to look. */
  note?: ReactNode
}

/** The figures of a page, in a row. */
export function Stats({ children }: { children: ReactNode }): ReactNode {
  return <dl className={styles.stats}>{children}</dl>
}

/** One figure; belongs in `Stats`. */
export function Stat({ name, value, note }: StatProps): ReactNode {
  return (
    <div className={styles.stat}>
      <dt>{name}</dt>
      <dd className={styles.value}>{value}</dd>
      {note !== undefined && <dd className={styles.note}>{note}</dd>}
    </div>
  )
}
