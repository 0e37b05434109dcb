import type { ReactNode } from 'react'
import type { Message } from '../api/client'
import { count } from '../format/numbers'
import { Bytes } from './Bytes'
import styles from './CollectionPanel.module.css'
import { collectionState } from './collectionState'
import { Facts } from './Facts'
import { Panel } from './Panel'
import { Snippet } from './Snippet'
import { StateBadge } from './StateBadge'
import { When } from './When'

/** How far collection is, which removes what nobody needs any more; and that it stands still, where the bucket holds what the database does not know. */
export function CollectionPanel({ collection }: { collection: Message<'CollectionInfo'> | null }): ReactNode {
  if (collection === null) {
    return (
      <Panel title="Collection">
        <p className={styles.soft}>Needs a token of all projects: collection works on the whole bucket.</p>
      </Panel>
    )
  }
  const { state, label } = collectionState(collection)
  return (
    <Panel title="Collection">
      <div className={styles.stack}>
        <Facts
          facts={[
            { name: 'State', value: <StateBadge state={state} label={label} /> },
            { name: 'Passes', value: count(collection.passes) },
            { name: 'Last began', value: <When time={collection.started_at} /> },
            { name: 'Last ended', value: <When time={collection.ended_at} /> },
            { name: 'Objects removed', value: count(collection.removed_objects) },
            { name: 'Bytes freed', value: <Bytes value={collection.freed_bytes} /> },
          ]}
        />
        {collection.stopped_because !== null && (
          <div role="note" className={styles.stopped}>
            <p>{collection.stopped_because}</p>
            <p>
              Nothing is collected until the database knows what the bucket holds. With all services and workers
              stopped:
            </p>
            <Snippet text="shardkeep-service rebuild --add" label="command" />
          </div>
        )}
      </div>
    </Panel>
  )
}
