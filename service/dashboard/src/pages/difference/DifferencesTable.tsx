import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { DataTable } from '../../components/DataTable'
import { percent } from '../../format/numbers'
import { shapeText } from '../../format/shapes'
import type { Change } from './search'
import styles from './difference.module.css'

type Difference = Message<'TensorDifference'>

const SIGNS: Record<Change, string> = { added: '+', removed: '−', changed: '~', reshaped: '#', recut: '?' }

/** The tensors that the two have otherwise; what the other has where it is not the same. */
export function DifferencesTable({ rows, empty }: { rows: readonly Difference[]; empty: ReactNode }): ReactNode {
  return (
    <DataTable<Difference>
      caption="Tensors that differ, by name"
      rows={rows}
      rowKey={({ name }) => name}
      empty={empty}
      columns={[
        { id: 'name', header: 'Name', wide: true, cell: ({ name }) => <code className={styles.name}>{name}</code> },
        { id: 'change', header: 'Change', cell: ({ change }) => <ChangeWord change={change} /> },
        { id: 'what', header: 'Here', cell: (row) => here(row) },
        { id: 'other', header: 'There', cell: (row) => there(row) },
        { id: 'raw', header: 'Size', align: 'end', cell: ({ raw_bytes }) => <Bytes value={raw_bytes} /> },
        { id: 'changed', header: 'Differs', align: 'end', cell: ({ changed_bytes }) => <Bytes value={changed_bytes} /> },
        {
          id: 'share',
          header: 'Of it',
          align: 'end',
          cell: ({ changed_bytes, raw_bytes }) => (raw_bytes > 0 ? percent(changed_bytes / raw_bytes) : '–'),
        },
      ]}
    />
  )
}

function ChangeWord({ change }: { change: Change }): ReactNode {
  return (
    <span className={styles.change} data-change={change}>
      <span className={styles.sign} aria-hidden="true">
        {SIGNS[change]}
      </span>
      {change}
    </span>
  )
}

function here({ change, dtype, shape }: Difference): ReactNode {
  return change === 'removed' ? '–' : <code className={styles.kind}>{`${dtype} ${shapeText(shape)}`}</code>
}

function there({ change, dtype, shape, other_dtype, other_shape }: Difference): ReactNode {
  if (change === 'added') return '–'
  return <code className={styles.kind}>{`${other_dtype ?? dtype} ${shapeText(other_shape ?? shape)}`}</code>
}
