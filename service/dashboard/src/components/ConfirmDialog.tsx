import { useEffect, useRef, useState, type ReactNode } from 'react'
import { asProblem } from '../api/problem'
import { useAnnounce } from './announce'
import { Button } from './Button'
import { Dialog } from './Dialog'
import { ProblemNotice } from './ProblemNotice'
import { TextField } from './TextField'

export interface ConfirmDialogProps {
  title: string
  /** What it will mean. */
  children: ReactNode
  /** What must be typed first, for what cannot easily be undone. */
  typeToConfirm?: string | undefined
  confirmLabel: string
  /** Closes the dialog when it succeeds; what it rejects with is shown here, or announced once the dialog is closed. */
  onConfirm: () => Promise<unknown>
  onClose: () => void
  kind?: 'danger' | 'primary'
  /** Why it cannot be confirmed now. */
  reason?: string | undefined
}

export function ConfirmDialog(props: ConfirmDialogProps): ReactNode {
  const { title, children, typeToConfirm, confirmLabel, onConfirm, onClose, kind = 'danger', reason } = props
  const [typed, setTyped] = useState('')
  const [pending, setPending] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const announce = useAnnounce()
  const isOpen = useIsOpen()
  const untyped = typeToConfirm !== undefined && typed !== typeToConfirm
  const why = reason ?? (untyped ? `Type ${typeToConfirm} first.` : undefined)

  const confirm = async (): Promise<void> => {
    if (why !== undefined || pending) return
    setPending(true)
    setError(null)
    try {
      await onConfirm()
    } catch (failure) {
      setError(failure)
      setPending(false)
      // What was begun goes on without the dialog, and nobody may take a failure of it for success.
      if (!isOpen.current) announce(failureWords(title, failure))
      return
    }
    if (isOpen.current) onClose()
  }

  const actions = (
    <>
      <Button onClick={onClose}>{pending ? 'Close' : 'Cancel'}</Button>
      <Button kind={kind} reason={why} pending={pending} onClick={() => void confirm()}>
        {confirmLabel}
      </Button>
    </>
  )
  return (
    <Dialog title={title} onClose={onClose} actions={actions}>
      {children}
      {typeToConfirm !== undefined && (
        <form
          onSubmit={(event) => {
            event.preventDefault()
            void confirm()
          }}
        >
          <TextField label={`Type ${typeToConfirm} to confirm`} value={typed} onChange={setTyped} />
        </form>
      )}
      {error !== null && <ProblemNotice error={error} />}
    </Dialog>
  )
}

/** Whether the dialog is rendered still, for what ends later. */
function useIsOpen(): { readonly current: boolean } {
  const isOpen = useRef(true)
  useEffect(() => {
    isOpen.current = true
    return () => {
      isOpen.current = false
    }
  }, [])
  return isOpen
}

function failureWords(title: string, failure: unknown): string {
  const problem = asProblem(failure)
  const request = problem.requestId === null ? '' : ` (request ${problem.requestId})`
  return `${title.replace(/\?$/, '')}: ${problem.title}. ${problem.detail}${request}`
}
