import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { When } from '../../components/When'
import styles from './audit.module.css'
import { EntryDetail } from './EntryDetail'
import type { AuditFilter } from './filters'

type Entry = Message<'AuditEntryInfo'>

const COLUMNS: readonly Column<Entry>[] = [
  { id: 'action', header: 'Action', cell: ({ action }) => <code>{action}</code> },
  { id: 'at', header: 'When', cell: ({ at }) => <When time={at} /> },
  { id: 'actor', header: 'Who', cell: ({ actor_name }) => <span className={styles.who}>{actor_name}</span> },
  { id: 'project', header: 'Project', cell: ({ project }) => project ?? '–' },
  { id: 'detail', header: 'Details', wide: true, cell: (entry) => <EntryDetail entry={entry} /> },
]

/** Entries, newest first; each unfolds. */
export function EntriesTable({ entries, filter }: { entries: readonly Entry[]; filter: AuditFilter }): ReactNode {
  const filtered = Object.keys(filter).length > 0
  return (
    <DataTable
      caption="Changes, newest first"
      columns={COLUMNS}
      rows={entries}
      rowKey={({ id }) => String(id)}
      empty={
        filtered ? (
          <Empty title="No change matches">Ask for less, or show everything.</Empty>
        ) : (
          <Empty
            title="Nothing was changed yet"
            command="shardkeep push model.safetensors my-project/my-run --step 0"
          />
        )
      }
    />
  )
}
