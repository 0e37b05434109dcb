import type { ReactNode } from 'react'
import { classes } from './classes'
import { CopyButton } from './CopyButton'
import styles from './Identifier.module.css'

export interface IdentifierProps {
  value: string
  /** What it is: "checkpoint id". */
  label: string
  /** Shows its beginning only; the whole is in the title and what is copied. */
  short?: boolean
}

const SHORT = 12

/** An id or digest with a button that copies it. */
export function Identifier({ value, label, short = false }: IdentifierProps): ReactNode {
  const shown = short && value.length > SHORT ? `${value.slice(0, SHORT)}…` : value
  return (
    <span className={classes(styles.identifier, short && styles.short)}>
      <code title={value}>{shown}</code>
      <CopyButton text={value} label={label} />
    </span>
  )
}
