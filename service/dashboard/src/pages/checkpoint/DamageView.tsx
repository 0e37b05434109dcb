import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { findingsQuery } from '../../api/integrity'
import { given } from '../../app/searchParams'
import { DataTable } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Identifier } from '../../components/Identifier'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { When } from '../../components/When'
import type { ViewProps } from './views'
import styles from './checkpoint.module.css'

type Finding = Message<'FindingInfo'>

/** What of it was found damaged or lost. */
export function DamageView({ checkpoint, search, onChange }: ViewProps): ReactNode {
  const { cursor } = search
  const findings = useQuery(findingsQuery({ checkpoint: checkpoint.id, limit: 50, ...given({ cursor }) }))
  return (
    <div className={styles.stack}>
      {checkpoint.quarantined && (
        <p>
          It is quarantined: resuming passes it over. The next save that holds the same bytes heals it; see{' '}
          <Link to="/integrity">integrity</Link>.
        </p>
      )}
      <Loaded query={findings}>
        {({ items, next_cursor }) => (
          <>
            <DataTable<Finding>
              caption="What was found damaged or lost"
              rows={items}
              rowKey={({ id }) => String(id)}
              empty={<Empty title="Nothing of it is known to be damaged" command={`shardkeep verify ${checkpoint.id}`} />}
              columns={[
                { id: 'kind', header: 'What', cell: ({ kind, damage }) => `${kind.replaceAll('_', ' ')}, ${damage}` },
                { id: 'detail', header: 'In words', wide: true, cell: ({ detail }) => <div className={styles.text}>{detail}</div> },
                {
                  id: 'digest',
                  header: 'Digest',
                  cell: ({ digest }) => (digest === null ? '–' : <Identifier value={digest} label="digest" short />),
                },
                { id: 'key', header: 'Object', cell: ({ object_key }) => <Identifier value={object_key} label="object key" short /> },
                { id: 'found', header: 'Found', cell: ({ found_at }) => <When time={found_at} /> },
              ]}
            />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
              onCursor={(following) => {
                onChange({ cursor: following })
              }}
            />
          </>
        )}
      </Loaded>
    </div>
  )
}
