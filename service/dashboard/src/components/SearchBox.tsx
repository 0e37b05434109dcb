import { useEffect, useEffectEvent, useId, type ReactNode } from 'react'
import styles from './Field.module.css'
import { Icon } from './Icon'
import { useDraft } from './useDraft'

const PAUSE_MILLISECONDS = 300

export interface SearchBoxProps {
  label: string
  /** What is searched for now, as the URL has it. */
  value: string
  /** After a pause in typing, or at once with Enter. */
  onSearch: (value: string) => void
  placeholder?: string
}

/** A search field, which the key `/` focuses. */
export function SearchBox({ label, value, onSearch, placeholder }: SearchBoxProps): ReactNode {
  const id = useId()
  const { text, type, sent, isSent } = useDraft(value)
  const searchNow = (): void => {
    if (isSent || text.trim() === value) return
    sent(text)
    onSearch(text)
  }
  // As the page is when the pause is over: what was filtered meanwhile stays filtered.
  const searchLate = useEffectEvent(searchNow)
  useEffect(() => {
    const pause = window.setTimeout(() => {
      searchLate()
    }, PAUSE_MILLISECONDS)
    return () => {
      window.clearTimeout(pause)
    }
  }, [text])
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={styles.label}>
        {label}
      </label>
      <div className={styles.search}>
        <Icon name="search" />
        <input
          id={id}
          type="search"
          value={text}
          placeholder={placeholder}
          autoComplete="off"
          spellCheck={false}
          maxLength={200}
          aria-keyshortcuts="/"
          className={styles.input}
          onChange={(event) => {
            type(event.target.value)
          }}
          onKeyDown={(event) => {
            if (event.key === 'Enter') searchNow()
          }}
        />
      </div>
    </div>
  )
}
