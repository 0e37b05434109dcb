import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Identifier } from '../../components/Identifier'
import { When } from '../../components/When'
import { RestoreProjectDialog } from './RestoreProjectDialog'
import styles from './projects.module.css'

type Project = Message<'ProjectInfo'>

const FACTS: readonly Column<Project>[] = [
  { id: 'name', header: 'Project', cell: ({ name }) => <span className={styles.name}>{name}</span> },
  { id: 'id', header: 'Id', cell: ({ id }) => <Identifier value={id} label="project id" short /> },
  { id: 'deleted', header: 'Deleted', cell: ({ deleted_at }) => <When time={deleted_at ?? null} /> },
  { id: 'created', header: 'Created', cell: ({ created_at }) => <When time={created_at} /> },
]

/** Deleted projects, which can be restored. */
export function DeletedTable({ projects }: { projects: readonly Project[] }): ReactNode {
  const [restoringId, setRestoringId] = useState<string | null>(null)
  const refusal = useRefusal('admin')
  const restoring = projects.find(({ id }) => id === restoringId)
  const actions: Column<Project> = {
    id: 'actions',
    header: 'Actions',
    cell: ({ id, name }) => (
      <Button
        reason={refusal}
        label={`Restore ${name}`}
        onClick={() => {
          setRestoringId(id)
        }}
      >
        Restore
      </Button>
    ),
  }
  return (
    <>
      <DataTable
        caption="Deleted projects"
        columns={[...FACTS, actions]}
        rows={projects}
        rowKey={({ id }) => id}
        empty={
          <Empty title="No project is deleted" command="shardkeep ls --deleted">
            What was deleted is listed here, and can be restored until it is purged.
          </Empty>
        }
      />
      {restoring !== undefined && (
        <RestoreProjectDialog
          project={restoring}
          onClose={() => {
            setRestoringId(null)
          }}
        />
      )}
    </>
  )
}
