import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Bytes } from '../../components/Bytes'
import { DataTable, type Column } from '../../components/DataTable'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import { NoRuns } from './NoRuns'
import { RestoreRunDialog } from './RestoreRunDialog'
import type { RunsTableProps } from './RunsTable'
import { sortChange, sortOf } from './search'

type Run = Message<'RunSummary'>

const COLUMNS: readonly Column<Run>[] = [
  { id: 'name', header: 'Run', sort: 'name', cell: (run) => `${run.project}/${run.name}` },
  { id: 'deleted', header: 'Deleted', align: 'end', cell: (run) => <When time={run.deleted_at ?? null} /> },
  {
    id: 'last_step',
    header: 'Last step',
    sort: 'last_step',
    align: 'end',
    cell: (run) => (run.last_step === null ? '–' : count(run.last_step)),
  },
  {
    id: 'last_committed',
    header: 'Last committed',
    sort: 'last_committed',
    align: 'end',
    cell: (run) => <When time={run.last_committed_at} />,
  },
  {
    id: 'stored_bytes',
    header: 'Stored',
    sort: 'stored_bytes',
    align: 'end',
    cell: (run) => <Bytes value={run.stored_bytes} />,
  },
]

/** The runs that were deleted and are not purged yet, each of which can be restored. */
export function DeletedRunsTable({ runs, search, onChange }: RunsTableProps): ReactNode {
  const refusal = useRefusal('delete')
  const [wanted, setWanted] = useState<Run | null>(null)
  const restoration: Column<Run> = {
    id: 'restore',
    header: 'Actions',
    align: 'end',
    cell: (run) => (
      <Button
        label={`Restore run ${run.project}/${run.name}`}
        reason={refusal}
        onClick={() => {
          setWanted(run)
        }}
      >
        Restore…
      </Button>
    ),
  }
  return (
    <>
      <DataTable
        caption="Deleted runs"
        columns={[...COLUMNS, restoration]}
        rows={runs}
        rowKey={(run) => run.id}
        sort={sortOf(search)}
        onSort={(sort) => {
          onChange(sortChange(sort))
        }}
        empty={<NoRuns search={search} />}
      />
      {wanted !== null && (
        <RestoreRunDialog
          run={runs.find((run) => run.id === wanted.id) ?? wanted}
          onClose={() => {
            setWanted(null)
          }}
        />
      )}
    </>
  )
}
