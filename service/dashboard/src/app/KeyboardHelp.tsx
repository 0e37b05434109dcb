import { useState, type ReactNode } from 'react'
import { Button } from '../components/Button'
import { CheckField } from '../components/CheckField'
import { Dialog } from '../components/Dialog'
import { SHORTCUTS, singleKeysOn, turnSingleKeys } from './keyboard'
import styles from './KeyboardHelp.module.css'

export function KeyboardHelp({ onClose }: { onClose: () => void }): ReactNode {
  const [on, setOn] = useState(singleKeysOn)
  const turn = (next: boolean): void => {
    turnSingleKeys(next)
    setOn(next)
  }
  return (
    <Dialog title="Keyboard" onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      <dl className={styles.keys}>
        {SHORTCUTS.map(({ keys, does }) => (
          <div key={keys} className={styles.shortcut}>
            <dt>
              {keys.split(' ').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <CheckField label="Single keys are on" checked={on} onChange={turn} hint="Turn them off when you speak your input." />
    </Dialog>
  )
}
