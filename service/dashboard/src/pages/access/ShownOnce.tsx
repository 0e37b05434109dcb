import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Button } from '../../components/Button'
import { Dialog } from '../../components/Dialog'
import { Facts } from '../../components/Facts'
import { Snippet } from '../../components/Snippet'
import { When } from '../../components/When'
import styles from './access.module.css'
import { Reach } from './Reach'

export interface ShownOnceProps {
  made: Message<'NewToken'>
  onClose: () => void
}

/** The text of a token just made, to be taken away now. */
export function ShownOnce({ made, onClose }: ShownOnceProps): ReactNode {
  const { token, info } = made
  const [taken, setTaken] = useState(false)
  const [asked, setAsked] = useState(false)
  const close = (
    <Button kind="primary" onClick={onClose}>
      I have stored it
    </Button>
  )
  return (
    <Dialog
      title={`Token ${info.name}`}
      onClose={() => {
        // Esc is pressed too easily for what cannot be had again: who copied by hand says so with the button.
        if (taken) onClose()
        else setAsked(true)
      }}
      actions={close}
    >
      <p className={styles.warning}>
        <strong>It is shown this once.</strong> The service keeps only its hash, and nobody can show it again. Put it
        where secrets are kept: whoever has it may do what it may do.
      </p>
      <Snippet
        text={token}
        label="token"
        onCopied={() => {
          setTaken(true)
        }}
      />
      <p>Where a job or the command line is to use it:</p>
      <Snippet text="export SHARDKEEP_TOKEN_FILE=/run/secrets/shardkeep-token" label="command" />
      <Facts
        facts={[
          { name: 'Scope', value: info.scope },
          { name: 'Sees', value: <Reach token={info} /> },
          { name: 'Expires', value: info.expires_at === null ? 'never' : <When time={info.expires_at} absolute /> },
        ]}
      />
      {asked && !taken && (
        <p role="alert" className={styles.warning}>
          It was not copied yet, and would be gone. Copy it, or press <q>I have stored it</q> to close this.
        </p>
      )}
    </Dialog>
  )
}
