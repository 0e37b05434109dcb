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
}

/** Projects in use, with what can be done about each. */
export function LivingTable({ projects, selected }: LivingTableProps): ReactNode {
  const [deletingId, setDeletingId] = useState<string | null>(null)
  const refusal = useRefusal('admin')
  // Looked up anew, so that after a refusal the dialog goes by the version that was read again.
  const deleting = projects.find(({ id }) => id === deletingId)
  const actions: Column<Project> = {
    id: 'actions',
    header: 'Actions',
    cell: ({ id, name }) => (
      <span className={styles.actions}>
        <LinkButton to="/retention/$project" params={{ project: name }} aria-label={`Retention of ${name}`}>
          Retention
        </LinkButton>
        <LinkButton
          from="/projects"
          to="/projects"
          search={(before) => ({ ...before, project: name })}
          resetScroll={false}
          aria-label={`Quota of ${name}`}
        >
          Quota
        </LinkButton>
        <Button
          kind="danger"
          reason={refusal}
          label={`Delete ${name}`}
          onClick={() => {
            setDeletingId(id)
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
          <Empty title="There is no project yet" command="shardkeep push model.safetensors my-project/my-run --step 0">
            Create one here, or let the first push or save with an administrator's token make it.
          </Empty>
        }
      />
      {deleting !== undefined && (
        <DeleteProjectDialog
          project={deleting}
          onClose={() => {
            setDeletingId(null)
          }}
        />
      )}
    </>
  )
}
