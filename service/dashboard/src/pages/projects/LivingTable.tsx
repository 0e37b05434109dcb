import { Link } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Bytes } from '../../components/Bytes'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { LinkButton } from '../../components/LinkButton'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import { DeleteProjectDialog } from './DeleteProjectDialog'
import styles from './projects.module.css'

type Project = Message<'ProjectInfo'>

const FACTS: readonly Column<Project>[] = [
  {
    id: 'name',
    header: 'Project',
    cell: ({ name }) => (
      <Link to="/runs" search={{ project: name }} className={styles.name}>
        {name}
      </Link>
    ),
  },
  { id: 'runs', header: 'Runs', align: 'end', cell: ({ runs }) => count(runs) },
  {
    id: 'checkpoints',
    header: 'Checkpoints',
    align: 'end',
    cell: ({ committed_checkpoints }) => count(committed_checkpoints),
  },
  { id: 'stored', header: 'Stored', align: 'end', cell: ({ stored_bytes }) => <Bytes value={stored_bytes} /> },
  { id: 'created', header: 'Created', cell: ({ created_at }) => <When time={created_at} /> },
]

export interface LivingTableProps {
  projects: readonly Project[]
  /** The name of the one whose quota is shown. */
  selected: string | undefined
  search: string | undefined
  onDeleted: (project: Project) => void
}

/** Projects in use, with what can be done about each. */
export function LivingTable({ projects, selected, search, onDeleted }: LivingTableProps): ReactNode {
  const [doomed, setDoomed] = useState<Project | null>(null)
  const refusal = useRefusal('admin')
  const actions: Column<Project> = {
    id: 'actions',
    header: 'Actions',
    cell: (project) => (
      <span className={styles.actions}>
        <LinkButton to="/retention/$project" params={{ project: project.name }} aria-label={`Retention of ${project.name}`}>
          Retention
        </LinkButton>
        <LinkButton
          from="/projects"
          to="/projects"
          search={(before) => ({ ...before, project: project.name })}
          resetScroll={false}
          aria-label={`Quota of ${project.name}`}
        >
          Quota
        </LinkButton>
        <Button
          kind="danger"
          reason={refusal}
          label={`Delete ${project.name}`}
          onClick={() => {
            setDoomed(project)
          }}
        >
          Delete
        </Button>
      </span>
    ),
  }
  return (
    <>
      <DataTable
        caption="Projects, by name"
        columns={[...FACTS, actions]}
        rows={projects}
        rowKey={({ name }) => name}
        {...(selected === undefined ? {} : { selected })}
        empty={
          search === undefined ? (
            <Empty title="There is no project yet" command="shardkeep push model.safetensors my-project/my-run --step 0">
              Create one here, or let the first push or save with an administrator's token make it.
            </Empty>
          ) : (
            <Empty title="No project is called so">Search for less of its name, or among the deleted ones.</Empty>
          )
        }
      />
      {doomed !== null && (
        <DeleteProjectDialog
          // After a refusal by the version that was read again. Once it is gone from the list the dialog stays until it is closed.
          project={projects.find(({ id }) => id === doomed.id) ?? doomed}
          onDeleted={onDeleted}
          onClose={() => {
            setDoomed(null)
          }}
        />
      )}
    </>
  )
}
