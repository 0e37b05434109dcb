import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { tensorsQuery } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { given } from '../../app/searchParams'
import { Button } from '../../components/Button'
import { Bytes } from '../../components/Bytes'
import { DataTable } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { SearchBox } from '../../components/SearchBox'
import { Toolbar } from '../../components/Toolbar'
import { count } from '../../format/numbers'
import { shapeText } from '../../format/shapes'
import { SlicesPanel } from './SlicesPanel'
import type { ViewProps } from './views'
import styles from './checkpoint.module.css'

const PAGE = 50

/** The tensors; the slices of the one that is chosen are shown above them. */
export function TensorsView({ checkpoint, search, onChange }: ViewProps): ReactNode {
  const { cursor, tensor } = search
  const tensors = useQuery(tensorsQuery(checkpoint.id, { ...given({ cursor, search: search.search }), limit: PAGE }))
  return (
    <div className={styles.stack}>
      <Toolbar label="Filter of the tensors">
        <SearchBox
          label="Search tensors"
          value={search.search ?? ''}
          placeholder="any part of a name"
          onSearch={(text) => {
            onChange({ search: text || undefined, cursor: undefined })
          }}
        />
      </Toolbar>
      {tensor !== undefined && <SlicesPanel checkpoint={checkpoint.id} tensor={tensor} cursor={search.slices} onChange={onChange} />}
      <Loaded query={tensors}>
        {({ items, next_cursor }) => (
          <>
            <DataTable<Message<'TensorInfo'>>
              caption="Tensors, by name"
              rows={items}
              rowKey={({ name }) => name}
              {...(tensor === undefined ? {} : { selected: tensor })}
              empty={<Empty title={search.search === undefined ? 'It has no tensors' : 'No tensor is called like that'} />}
              columns={[
                { id: 'name', header: 'Name', wide: true, cell: ({ name }) => <code className={styles.name}>{name}</code> },
                { id: 'shape', header: 'Shape', cell: ({ shape }) => <code>{shapeText(shape)}</code> },
                { id: 'dtype', header: 'Type', cell: ({ dtype }) => <code>{dtype}</code> },
                { id: 'kind', header: 'Kind', cell: ({ kind }) => kind },
                { id: 'raw', header: 'Size', align: 'end', cell: ({ raw_bytes }) => <Bytes value={raw_bytes} /> },
                { id: 'slices', header: 'Slices', align: 'end', cell: ({ slices }) => count(slices) },
                {
                  id: 'show',
                  header: 'Show',
                  cell: ({ name }) => (
                    <Button
                      label={`${name === tensor ? 'Hide' : 'Show'} the slices of ${name}`}
                      expanded={name === tensor}
                      onClick={() => {
                        onChange({ tensor: name === tensor ? undefined : name, slices: undefined })
                      }}
                    >
                      {name === tensor ? 'Hide' : 'Slices'}
                    </Button>
                  ),
                },
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
