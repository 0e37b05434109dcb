import type { ReactNode } from 'react'
import styles from './Toolbar.module.css'

/** The filters of a list, in a row that wraps. */
export function Toolbar({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div role="group" aria-label={label} className={styles.toolbar}>
      {children}
    </div>
  )
}
