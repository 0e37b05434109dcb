import { useId, type ReactNode } from 'react'
import { classes } from './classes'
import styles from './Panel.module.css'

export interface PanelProps {
  title: string
  /** Beside the title. */
  actions?: ReactNode
  /** What it holds reaches the borders, as a table does. */
  flush?: boolean
  children: ReactNode
}

/** A titled part of a page. */
export function Panel({ title, actions, flush = false, children }: PanelProps): ReactNode {
  const id = useId()
  return (
    <section className={styles.panel} aria-labelledby={id}>
      <div className={styles.head}>
        <h2 id={id}>{title}</h2>
        {actions !== undefined && <div className={styles.actions}>{actions}</div>}
      </div>
      <div className={classes(styles.body, flush && styles.flush)}>{children}</div>
    </section>
  )
}
