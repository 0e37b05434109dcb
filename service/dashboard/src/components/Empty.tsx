import type { ReactNode } from 'react'
import styles from './Empty.module.css'
import { Snippet } from './Snippet'

export interface EmptyProps {
  title: string
  children?: ReactNode
  /** The command that would fill it. */
  command?: string
}

/** What is shown where there is nothing, and how there would be something. */
export function Empty({ title, children, command }: EmptyProps): ReactNode {
  return (
    <div className={styles.empty}>
      <p className={styles.title}>{title}</p>
      {children !== undefined && <div>{children}</div>}
      {command !== undefined && <Snippet text={command} label="command" />}
    </div>
  )
}
