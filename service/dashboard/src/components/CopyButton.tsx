import { useState, type ReactNode, type RefObject } from 'react'
import { useAnnounce } from './announce'
import styles from './CopyButton.module.css'
import { Icon } from './Icon'

export interface CopyButtonProps {
  text: string
  /** What is copied: "checkpoint id". */
  label: string
  /** Where the text is shown whole: it is selected where the browser does not let it be copied. */
  shownIn?: RefObject<HTMLElement | null>
  onCopied?: () => void
}

const ICONS = { ready: 'copy', copied: 'check', refused: 'alert' } as const

export function CopyButton({ text, label, shownIn, onCopied }: CopyButtonProps): ReactNode {
  const announce = useAnnounce()
  const [state, setState] = useState<keyof typeof ICONS>('ready')
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      // No clipboard without TLS off loopback: the keys of the browser's own still copy what is selected.
      setState('refused')
      const shown = shownIn?.current ?? null
      if (shown !== null) window.getSelection()?.selectAllChildren(shown)
      const hand = shown === null ? 'Select and copy it by hand.' : 'It is selected: copy it with Ctrl+C or ⌘C.'
      announce(`The browser did not let the ${label} be copied. ${hand}`)
      return
    }
    setState('copied')
    onCopied?.()
    announce(`Copied the ${label}.`)
  }
  const titles = { ready: `Copy ${label}`, copied: 'Copied', refused: 'Not copied: the browser did not let it be' }
  return (
    <button
      type="button"
      className={styles.copy}
      data-state={state}
      aria-label={`Copy ${label}`}
      title={titles[state]}
      onClick={() => void copy()}
      onBlur={() => {
        setState('ready')
      }}
    >
      <Icon name={ICONS[state]} />
    </button>
  )
}
