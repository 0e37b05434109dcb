import type { ReactNode } from 'react'
import styles from './Tag.module.css'

/** A short word about something: a tag, a label, a scope. */
export function Tag({ children, tone = 'plain' }: { children: ReactNode; tone?: 'plain' | 'accent' }): ReactNode {
  return (
    <span className={styles.tag} data-tone={tone}>
      {children}
    </span>
  )
}
