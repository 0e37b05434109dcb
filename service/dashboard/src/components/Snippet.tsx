import type { ReactNode } from 'react'
import { CopyButton } from './CopyButton'
import styles from './Snippet.module.css'

export interface SnippetProps {
  text: string
  /** What it is: "command". */
  label?: string
}

/** Text to copy into a shell or a program. */
export function Snippet({ text, label = 'snippet' }: SnippetProps): ReactNode {
  return (
    <div className={styles.snippet}>
      <pre tabIndex={0} role="region" aria-label={label}>
        {text}
      </pre>
      <CopyButton text={text} label={label} />
    </div>
  )
}
