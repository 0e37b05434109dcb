import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { Facts } from '../../components/Facts'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { count } from '../../format/numbers'

/** How far collection is, which removes what nobody needs any more. */
export function CollectionPanel({ collection }: { collection: Message<'CollectionInfo'> }): ReactNode {
  return (
    <Panel title="Collection">
      <Facts
        facts={[
          { name: 'State', value: <CollectionState collection={collection} /> },
          { name: 'Passes', value: count(collection.passes) },
          { name: 'Last began', value: <When time={collection.started_at} /> },
          { name: 'Last ended', value: <When time={collection.ended_at} /> },
          { name: 'Objects removed', value: count(collection.removed_objects) },
          { name: 'Freed', value: <Bytes value={collection.freed_bytes} /> },
        ]}
      />
    </Panel>
  )
}

function CollectionState({ collection }: { collection: Message<'CollectionInfo'> }): ReactNode {
  if (collection.stopped_because !== null) {
    return <StateBadge state="stopped" label={`stopped: ${collection.stopped_because}`} />
  }
  if (collection.running) return <StateBadge state="running" />
  return collection.passes === 0 ? <StateBadge state="new" label="not run yet" /> : <StateBadge state="idle" />
}
