import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Facts } from '../../components/Facts'
import { Identifier } from '../../components/Identifier'
import { When } from '../../components/When'
import styles from './audit.module.css'
import { detailLine } from './detailLine'

type Entry = Message<'AuditEntryInfo'>

/** One line of an entry's details, which unfolds to all of them. Everything is shown as text. */
export function EntryDetail({ entry }: { entry: Entry }): ReactNode {
  return (
    <details className={styles.details}>
      <summary>
        <span className={styles.line}>{detailLine(entry)}</span>
      </summary>
      <div className={styles.unfolded}>
        <Facts
          facts={[
            { name: 'On', value: <Target target={entry.target} /> },
            {
              name: 'By',
              value: (
                <>
                  <Identifier value={entry.actor} label="id of who did it" />
                  <Link to="/audit" search={{ actor: entry.actor }}>
                    all by this one
                  </Link>
                </>
              ),
            },
            { name: 'At', value: <When time={entry.at} absolute /> },
            {
              name: 'Request',
              value: entry.request_id === null ? '–' : <Identifier value={entry.request_id} label="request id" />,
            },
          ]}
        />
        {entry.detail !== null && (
          <pre className={styles.json} tabIndex={0} role="region" aria-label={`Details of entry ${entry.id}`}>
            {JSON.stringify(entry.detail, null, 2)}
          </pre>
        )}
      </div>
    </details>
  )
}

function Target({ target }: { target: string }): ReactNode {
  return (
    <>
      <Identifier value={target} label="id of what was changed" />
      <Link to="/audit" search={{ target }}>
        all on it
      </Link>
      {target.startsWith('ckp_') && (
        <>
          {' · '}
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint: target }}>
            the checkpoint
          </Link>
        </>
      )}
    </>
  )
}
