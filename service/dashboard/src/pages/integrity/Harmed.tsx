import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { counted } from '../../format/numbers'
import styles from './integrity.module.css'

const FIRST = 3
const SHORT = 12

/** Links to the checkpoints that a finding harms: a few at once, the rest unfolded. */
export function Harmed({ finding, checkpoints }: { finding: number; checkpoints: readonly string[] }): ReactNode {
  if (checkpoints.length === 0) return 'none'
  const rest = checkpoints.slice(FIRST)
  return (
    <div className={styles.harmed}>
      <Links checkpoints={checkpoints.slice(0, FIRST)} label={`Checkpoints that finding ${finding} harms`} />
      {rest.length > 0 && (
        <details>
          <summary>{counted(rest.length, 'more', 'more')}</summary>
          <Links checkpoints={rest} label={`Further checkpoints that finding ${finding} harms`} />
        </details>
      )}
    </div>
  )
}

function Links({ checkpoints, label }: { checkpoints: readonly string[]; label: string }): ReactNode {
  return (
    <ul aria-label={label} className={styles.links}>
      {checkpoints.map((checkpoint) => (
        <li key={checkpoint}>
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint }} title={checkpoint}>
            <code>{checkpoint.slice(0, SHORT)}…</code>
          </Link>
        </li>
      ))}
    </ul>
  )
}
