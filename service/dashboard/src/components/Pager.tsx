import type { ReactNode } from 'react'
import { Button } from './Button'
import styles from './Pager.module.css'

export interface PagerProps {
  /** Of the page that is shown; undefined on the first. */
  cursor: string | undefined
  nextCursor: string | null | undefined
  /** Goes to the page at a cursor, or to the first. */
  onCursor: (cursor: string | undefined) => void
}

/** The way through a list, whose cursor the URL holds: back is the browser's back. */
export function Pager({ cursor, nextCursor, onCursor }: PagerProps): ReactNode {
  const isFirst = cursor === undefined
  if (isFirst && !nextCursor) return null
  return (
    <nav aria-label="Pages of the list" className={styles.pager}>
      <Button
        onClick={() => {
          onCursor(undefined)
        }}
        reason={isFirst ? 'These are the first.' : undefined}
      >
        First page
      </Button>
      <Button
        onClick={() => {
          if (nextCursor) onCursor(nextCursor)
        }}
        reason={nextCursor ? undefined : 'These are the last.'}
      >
        Next page
      </Button>
    </nav>
  )
}
