import { useId, useLayoutEffect, useRef, type ReactNode } from 'react'
import styles from './Dialog.module.css'

export interface DialogProps {
  title: string
  /** Asked to close: Esc, or a button of one's own. The dialog is open as long as it is rendered. */
  onClose: () => void
  children: ReactNode
  /** Buttons at its foot. */
  actions?: ReactNode
}

/** A modal dialog of the browser's own: it traps the focus, and gives it back where it was. */
export function Dialog({ title, onClose, children, actions }: DialogProps): ReactNode {
  const id = useId()
  const ref = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => {
    const dialog = ref.current
    const before = document.activeElement
    dialog?.showModal()
    return () => {
      dialog?.close()
      const back = before instanceof HTMLElement && before.isConnected ? before : null
      // What opened it may be gone, as a row that was deleted is.
      ;(back ?? document.querySelector<HTMLElement>('main h1'))?.focus()
    }
  }, [])
  return (
    <dialog
      ref={ref}
      className={styles.dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        onClose()
      }}
    >
      <h2 id={id} className={styles.title}>
        {title}
      </h2>
      <div className={styles.body}>{children}</div>
      {actions !== undefined && <div className={styles.actions}>{actions}</div>}
    </dialog>
  )
}
