import { useCallback, useEffect, useState, type ReactNode } from 'react'
import { AnnounceContext } from './announce'
import styles from './Announcer.module.css'

const SHOWN_MILLISECONDS = 8_000

/** Holds the polite live region. The same message twice is said twice, since each one is an element of its own. */
export function Announcer({ children }: { children: ReactNode }): ReactNode {
  const [said, setSaid] = useState({ number: 0, message: '' })
  const announce = useCallback((message: string) => {
    setSaid(({ number }) => ({ number: number + 1, message }))
  }, [])
  useEffect(() => {
    if (said.message === '') return undefined
    const timer = window.setTimeout(() => {
      setSaid(({ number }) => ({ number, message: '' }))
    }, SHOWN_MILLISECONDS)
    return () => {
      window.clearTimeout(timer)
    }
  }, [said])
  return (
    <AnnounceContext value={announce}>
      {children}
      <div role="status" aria-live="polite" className={styles.region}>
        {said.message !== '' && (
          <p key={said.number} className={styles.message}>
            {said.message}
          </p>
        )}
      </div>
    </AnnounceContext>
  )
}
