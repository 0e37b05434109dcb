import type { ReactNode } from 'react'
import type { Message } from '../api/client'
import { SHAPES, shapeOf } from '../components/states'
import styles from './Mark.module.css'
import { isOffLine } from './marks'

export type MarkedCheckpoint = Pick<Message<'CheckpointSummary'>, 'state' | 'pinned' | 'quarantined' | 'on_line' | 'sequence'>

/** A checkpoint in a drawing, around the point 0, 0: its state's shape, and a sign for each thing it is beside that. */
export function Mark({ checkpoint }: { checkpoint: MarkedCheckpoint }): ReactNode {
  const { shape, tone } = shapeOf(checkpoint.state)
  const { path, filled } = SHAPES[shape]
  return (
    <g data-tone={tone} className={styles.mark}>
      <path d={path} transform="translate(-6.6 -6.6) scale(1.1)" className={filled ? styles.filled : styles.outline} />
      {checkpoint.pinned && <path d="M0 -8.500V-12M-3 -12H3" className={styles.pin} />}
      {checkpoint.quarantined && <path d="M-8.500 -8.500H8.500V8.500H-8.500Z" className={styles.quarantine} />}
      {isOffLine(checkpoint) && <path d="M-9 12H-4.500M-2.200 12H2.200M4.500 12H9" className={styles.offLine} />}
    </g>
  )
}
