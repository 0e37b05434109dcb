import { useCallback, useEffect, useState, type ReactNode } from 'react'
import { AnnounceContext } from './announce'
import styles from './Announcer.module.css'
import { onceNoneIsOpen } from './openDialogs'

const SHOWN_MILLISECONDS = 8_000
/** So long takes who reads slowly for one character. */
const CHARACTER_MILLISECONDS = 80

export interface AnnouncerProps {
  children: ReactNode
  /** Of an open dialog: what is said in it is said at once. */
  inside?: boolean
}

/**
 * Holds a polite live region. The same message twice is said twice, since each one is an element of its own. Beside a modal
 * dialog nothing is seen or read out, so the region of the page waits until none is open.
 */
export function Announcer({ children, inside = false }: AnnouncerProps): ReactNode {
  const [said, setSaid] = useState({ number: 0, message: '' })
  const announce = useCallback(
    (message: string) => {
      const say = (): void => {
        setSaid(({ number }) => ({ number: number + 1, message }))
      }
      if (inside) say()
      else onceNoneIsOpen(say)
    },
    [inside],
  )
  useEffect(() => {
    if (said.message === '') return undefined
    const timer = window.setTimeout(
      () => {
        setSaid(({ number }) => ({ number, message: '' }))
      },
      Math.max(SHOWN_MILLISECONDS, said.message.length * CHARACTER_MILLISECONDS),
    )
    return () => {
      window.clearTimeout(timer)
    }
  }, [said])
  return (
    <AnnounceContext value={announce}>
      {children}
      <div role="status" aria-live="polite" className={inside ? styles.inside : styles.region}>
        {said.message !== '' && (
          <p key={said.number} className={styles.message}>
            {said.message}
          </p>
        )}
      </div>
    </AnnounceContext>
  )
}
