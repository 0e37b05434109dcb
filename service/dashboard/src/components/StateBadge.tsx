import type { ReactNode } from 'react'
import { SHAPES, shapeOf } from './states'
import styles from './StateBadge.module.css'

export interface StateBadgeProps {
  /** As the API writes it. */
  state: string
  /** Other words for it. */
  label?: string
}

/** A state by shape and word; its colour only repeats what they say. */
export function StateBadge({ state, label }: StateBadgeProps): ReactNode {
  const words = label ?? state.replaceAll('_', ' ')
  const { shape, tone } = shapeOf(state)
  const { path, filled } = SHAPES[shape]
  return (
    <span className={styles.badge} data-tone={tone} data-state={state}>
      <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
        <path d={path} className={filled ? styles.filled : styles.outline} />
      </svg>
      {words.charAt(0).toUpperCase() + words.slice(1)}
    </span>
  )
}
