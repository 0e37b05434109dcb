import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { slicesQuery } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { given } from '../../app/searchParams'
import { Bytes } from '../../components/Bytes'
import { Button } from '../../components/Button'
import { DataTable } from '../../components/DataTable'
import { Identifier } from '../../components/Identifier'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { Panel } from '../../components/Panel'
import { count } from '../../format/numbers'
import { regionText } from '../../format/shapes'
import type { CheckpointSearch } from './search'
import styles from './checkpoint.module.css'

type Slice = Message<'SliceInfo'>

const PAGE = 50
const MOST_CHUNKS = 2

export interface SlicesPanelProps {
  checkpoint: string
  tensor: string
  cursor: string | undefined
  onChange: (changes: Partial<CheckpointSearch>) => void
}

/** Where one tensor is: which rank holds which region of it, and in which chunks. */
export function SlicesPanel({ checkpoint, tensor, cursor, onChange }: SlicesPanelProps): ReactNode {
  const slices = useQuery(slicesQuery(checkpoint, { tensor, limit: PAGE, ...given({ cursor }) }))
  return (
    <Panel
      title={`Slices of ${tensor}`}
      actions={
        <Button
          onClick={() => {
            onChange({ tensor: undefined, slices: undefined })
          }}
        >
          Close
        </Button>
      }
    >
      <Loaded query={slices}>
        {({ items, next_cursor }) => (
          <div className={styles.stack}>
            <DataTable<Slice>
              caption={`Slices of ${tensor}`}
              rows={items}
              rowKey={({ rank, offsets }) => `${rank}:${offsets.join(',')}`}
              empty={null}
              columns={[
                { id: 'rank', header: 'Rank', cell: ({ rank }) => count(rank) },
                { id: 'region', header: 'Region', wide: true, cell: ({ offsets, sizes }) => <code>{regionText(offsets, sizes)}</code> },
                { id: 'raw', header: 'Size', align: 'end', cell: ({ raw_bytes }) => <Bytes value={raw_bytes} /> },
                { id: 'stored', header: 'Stored', align: 'end', cell: ({ stored_bytes }) => <Bytes value={stored_bytes} /> },
                { id: 'segments', header: 'Segments', align: 'end', cell: ({ segments }) => count(segments) },
                { id: 'codecs', header: 'Codecs', cell: ({ codecs }) => codecs.join(', ') },
                { id: 'chunks', header: 'Chunks', cell: ({ chunks, chunk_count }) => <Chunks chunks={chunks} all={chunk_count} /> },
              ]}
            />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
              onCursor={(following) => {
                onChange({ slices: following })
              }}
            />
          </div>
        )}
      </Loaded>
    </Panel>
  )
}

function Chunks({ chunks, all }: { chunks: readonly string[]; all: number }): ReactNode {
  const more = all - Math.min(chunks.length, MOST_CHUNKS)
  return (
    <span className={styles.words}>
      {chunks.slice(0, MOST_CHUNKS).map((digest) => (
        <Identifier key={digest} value={digest} label="chunk digest" short />
      ))}
      {more > 0 && `and ${count(more)} more`}
    </span>
  )
}
