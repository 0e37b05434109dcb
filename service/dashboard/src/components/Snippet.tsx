import { useRef, type ReactNode } from 'react'
import { CopyButton } from './CopyButton'
import styles from './Snippet.module.css'

export interface SnippetProps {
  text: string
  /** What it is: "command". */
  label?: string
  onCopied?: () => void
}

/** Text to copy into a shell or a program. */
export function Snippet({ text, label = 'snippet', onCopied }: SnippetProps): ReactNode {
  const shown = useRef<HTMLPreElement>(null)
  return (
    <div className={styles.snippet}>
      <pre ref={shown} tabIndex={0} role="region" aria-label={label}>
        {text}
      </pre>
      <CopyButton text={text} label={label} shownIn={shown} {...(onCopied === undefined ? {} : { onCopied })} />
    </div>
  )
}
