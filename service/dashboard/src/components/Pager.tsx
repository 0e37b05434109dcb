import type { ReactNode } from 'react'
import { Button } from './Button'
import styles from './Pager.module.css'

export interface PagerProps {
  nextCursor: string | null | undefined
  onNext: (cursor: string) => void
  onFirst: () => void
  isFirst: boolean
}

/** The way through a list, whose cursor the URL holds: back is the browser's back. */
export function Pager({ nextCursor, onNext, onFirst, isFirst }: PagerProps): ReactNode {
  if (isFirst && !nextCursor) return null
  return (
    <nav aria-label="Pages of the list" className={styles.pager}>
      <Button onClick={onFirst} reason={isFirst ? 'These are the first.' : undefined}>
        First page
      </Button>
      <Button
        onClick={() => {
          if (nextCursor) onNext(nextCursor)
        }}
        reason={nextCursor ? undefined : 'These are the last.'}
      >
        Next page
      </Button>
    </nav>
  )
}
