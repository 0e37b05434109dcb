import { useState, type ReactNode } from 'react'
import { useAnnounce } from './announce'
import styles from './CopyButton.module.css'
import { Icon } from './Icon'

export interface CopyButtonProps {
  text: string
  /** What is copied: "checkpoint id". */
  label: string
}

export function CopyButton({ text, label }: CopyButtonProps): ReactNode {
  const announce = useAnnounce()
  const [copied, setCopied] = useState(false)
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      // No clipboard without TLS off loopback: the text can still be marked by hand.
      announce(`The browser did not let the ${label} be copied.`)
      return
    }
    setCopied(true)
    announce(`Copied the ${label}.`)
  }
  return (
    <button
      type="button"
      className={styles.copy}
      aria-label={`Copy ${label}`}
      title={copied ? 'Copied' : `Copy ${label}`}
      onClick={() => void copy()}
      onBlur={() => {
        setCopied(false)
      }}
    >
      <Icon name={copied ? 'check' : 'copy'} />
    </button>
  )
}
