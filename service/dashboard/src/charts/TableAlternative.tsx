import type { ReactNode } from 'react'
import styles from './TableAlternative.module.css'

/** A drawing's figures as a table, folded away below it. */
export function TableAlternative({ children }: { children: ReactNode }): ReactNode {
  return (
    <details className={styles.details}>
      <summary className={styles.summary}>The same as a table</summary>
      {children}
    </details>
  )
}
