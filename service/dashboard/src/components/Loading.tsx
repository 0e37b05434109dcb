import type { ReactNode } from 'react'
import styles from './Loading.module.css'

/** Says that something is on its way, once it takes long enough to be noticed. */
export function Loading({ what = 'Loading' }: { what?: string }): ReactNode {
  return (
    <p role="status" className={styles.loading}>
      {what}…
    </p>
  )
}
