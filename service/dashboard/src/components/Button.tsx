import { useId, type ReactNode } from 'react'
import { classes } from './classes'
import styles from './Button.module.css'

export type ButtonKind = 'plain' | 'primary' | 'danger' | 'quiet'

export interface ButtonProps {
  children: ReactNode
  onClick?: () => void
  kind?: ButtonKind
  type?: 'button' | 'submit'
  /** Why it cannot be used now: it stays in reach of the keyboard and says so. */
  reason?: string | undefined
  /** What it started still runs. */
  pending?: boolean
  /** What it is called, where its words alone do not say it: "Delete run a/b". */
  label?: string | undefined
  expanded?: boolean
}

export function Button(props: ButtonProps): ReactNode {
  const { children, onClick, kind = 'plain', type = 'button', reason, pending = false, label, expanded } = props
  const id = useId()
  const off = reason !== undefined || pending
  return (
    <>
      <button
        type={type}
        className={classes(styles.button, styles[kind])}
        aria-disabled={off || undefined}
        aria-busy={pending || undefined}
        aria-label={label}
        aria-expanded={expanded}
        aria-describedby={reason === undefined ? undefined : id}
        title={reason}
        onClick={(event) => {
          if (off) event.preventDefault()
          else onClick?.()
        }}
      >
        {children}
      </button>
      {reason !== undefined && (
        <span id={id} hidden>
          {reason}
        </span>
      )}
    </>
  )
}
