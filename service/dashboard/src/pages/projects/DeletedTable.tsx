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

export interface DeletedTableProps {
  projects: readonly Project[]
  search: string | undefined
}

/** Deleted projects, which can be restored. */
export function DeletedTable({ projects, search }: DeletedTableProps): ReactNode {
  const [wanted, setWanted] = useState<Project | null>(null)
  const refusal = useRefusal('admin')
  const actions: Column<Project> = {
    id: 'actions',
    header: 'Actions',
    cell: (project) => (
      <Button
        reason={refusal}
        label={`Restore ${project.name}`}
        onClick={() => {
          setWanted(project)
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
          search === undefined ? (
            <Empty title="No project is deleted" command="shardkeep ls --deleted">
              What was deleted is listed here, and can be restored until it is purged.
            </Empty>
          ) : (
            <Empty title="No deleted project was called so">Search for less of its name.</Empty>
          )
        }
      />
      {wanted !== null && (
        <RestoreProjectDialog
          // By the version of the list as it is now. Once it is gone from it the dialog stays until it is closed.
          project={projects.find(({ id }) => id === wanted.id) ?? wanted}
          onClose={() => {
            setWanted(null)
          }}
        />
      )}
    </>
  )
}
