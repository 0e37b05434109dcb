import { useEffect, useId, useRef, useState, type ReactNode } from 'react'
import styles from './Field.module.css'
import { Icon } from './Icon'

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
  const [text, setText] = useState(value)
  const [seen, setSeen] = useState(value)
  const [sent, setSent] = useState(value)
  const pause = useRef<number | undefined>(undefined)
  if (seen !== value) {
    // The URL changed by itself (back, a link): it says what is searched for. What was typed here meanwhile stays.
    setSeen(value)
    if (value !== sent) {
      setText(value)
      setSent(value)
    }
  }
  useEffect(
    () => () => {
      window.clearTimeout(pause.current)
    },
    [],
  )

  const searchNow = (next: string): void => {
    window.clearTimeout(pause.current)
    if (next === value) return
    setSent(next)
    onSearch(next)
  }
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
            const next = event.target.value
            setText(next)
            window.clearTimeout(pause.current)
            pause.current = window.setTimeout(searchNow, PAUSE_MILLISECONDS, next)
          }}
          onKeyDown={(event) => {
            if (event.key === 'Enter') searchNow(text)
          }}
        />
      </div>
    </div>
  )
}
