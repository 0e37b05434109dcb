import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Bytes } from '../../components/Bytes'
import { DataTable, type Column } from '../../components/DataTable'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import { DeleteRunDialog } from './DeleteRunDialog'
import { NoRuns } from './NoRuns'
import { RunLink } from './RunLink'
import type { ChangeSearch } from './RunsPage'
import { sortChange, sortOf, type RunsSearch } from './search'

type Run = Message<'RunSummary'>

export interface RunsTableProps {
  runs: readonly Run[]
  search: RunsSearch
  onChange: ChangeSearch
}

const COLUMNS: readonly Column<Run>[] = [
  { id: 'name', header: 'Run', sort: 'name', cell: (run) => <RunLink run={run} /> },
  { id: 'state', header: 'State', cell: (run) => <StateBadge state={run.state} /> },
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
  { id: 'checkpoints', header: 'Checkpoints', align: 'end', cell: (run) => count(run.committed_checkpoints) },
  {
    id: 'stored_bytes',
    header: 'Stored',
    sort: 'stored_bytes',
    align: 'end',
    cell: (run) => <Bytes value={run.stored_bytes} />,
  },
  { id: 'attempts', header: 'Attempts', align: 'end', cell: (run) => count(run.attempts) },
  { id: 'created', header: 'Created', sort: 'created', align: 'end', cell: (run) => <When time={run.created_at} /> },
]

/** The living runs, each of which can be deleted. */
export function RunsTable({ runs, search, onChange }: RunsTableProps): ReactNode {
  const refusal = useRefusal('delete')
  const [doomed, setDoomed] = useState<Run | null>(null)
  const deletion: Column<Run> = {
    id: 'delete',
    header: 'Actions',
    align: 'end',
    cell: (run) => (
      <Button
        kind="quiet"
        label={`Delete run ${run.project}/${run.name}`}
        reason={refusal}
        onClick={() => {
          setDoomed(run)
        }}
      >
        Delete…
      </Button>
    ),
  }
  return (
    <>
      <DataTable
        caption="Runs"
        columns={[...COLUMNS, deletion]}
        rows={runs}
        rowKey={(run) => run.id}
        sort={sortOf(search)}
        onSort={(sort) => {
          onChange(sortChange(sort))
        }}
        empty={<NoRuns search={search} />}
      />
      {doomed !== null && (
        <DeleteRunDialog
          // The list is asked for anew after a refusal, and then knows the version that the run has by now.
          run={runs.find((run) => run.id === doomed.id) ?? doomed}
          onClose={() => {
            setDoomed(null)
          }}
        />
      )}
    </>
  )
}
