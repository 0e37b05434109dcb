import { useEffectEvent, useId, useLayoutEffect, useRef, type ReactNode } from 'react'
import { Announcer } from './Announcer'
import styles from './Dialog.module.css'
import { dialogOpened } from './openDialogs'

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
  const closeAtEsc = useEffectEvent((event: KeyboardEvent) => {
    if (event.key !== 'Escape' || event.defaultPrevented) return
    event.preventDefault()
    onClose()
  })
  useLayoutEffect(() => {
    const dialog = ref.current
    const before = document.activeElement
    // A browser lets one request to close be refused, and closes at the next Esc: so none of them reaches it.
    const pressed = (event: KeyboardEvent): void => {
      closeAtEsc(event)
    }
    dialog?.addEventListener('keydown', pressed)
    dialog?.showModal()
    const closed = dialogOpened()
    return () => {
      dialog?.removeEventListener('keydown', pressed)
      dialog?.close()
      closed()
      if (before instanceof HTMLElement) before.focus()
      // What opened it may be gone, as a row that was deleted is, or go in this very change of the page.
      queueMicrotask(() => {
        const lost = document.activeElement === null || document.activeElement === document.body
        if (lost) document.querySelector<HTMLElement>('main h1')?.focus()
      })
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
      <div className={styles.body}>
        <Announcer inside>{children}</Announcer>
      </div>
      {actions !== undefined && <div className={styles.actions}>{actions}</div>}
    </dialog>
  )
}
