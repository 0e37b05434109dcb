import { useQuery } from '@tanstack/react-query'
import { createRoute } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import { projectsQuery } from '../../api/projects'
import { shellRoute } from '../../app/parent'
import { flagParam, given, textParam, without } from '../../app/searchParams'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { SearchBox } from '../../components/SearchBox'
import { Tabs } from '../../components/Tabs'
import { Toolbar } from '../../components/Toolbar'
import { CreateProjectDialog } from './CreateProjectDialog'
import { DeletedTable } from './DeletedTable'
import { LivingTable } from './LivingTable'
import { QuotaPanel } from './QuotaPanel'

interface ProjectsSearch {
  /** Those that can be restored. */
  deleted?: true
  /** The one whose quota is shown. */
  project?: string
  /** Part of a name. */
  search?: string
  cursor?: string
}

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/projects',
  validateSearch: (raw): ProjectsSearch =>
    given({
      deleted: flagParam(raw.deleted),
      project: textParam(raw.project),
      search: textParam(raw.search),
      cursor: textParam(raw.cursor),
    }),
  component: ProjectsPage,
})

function ProjectsPage(): ReactNode {
  const [creating, setCreating] = useState(false)
  const refusal = useRefusal('admin', true)
  const { deleted, project, search = '' } = route.useSearch()
  const navigate = route.useNavigate()
  const create = (
    <Button
      kind="primary"
      reason={refusal}
      onClick={() => {
        setCreating(true)
      }}
    >
      Create project
    </Button>
  )
  return (
    <Page title="Projects" actions={create}>
      <Tabs
        label="Projects"
        tabs={[
          { id: 'living', label: 'In use' },
          { id: 'deleted', label: 'Deleted' },
        ]}
        selected={deleted ? 'deleted' : 'living'}
        onSelect={(next) =>
          void navigate({ search: (before) => given({ deleted: next === 'deleted' || undefined, search: before.search }) })
        }
      >
        {project !== undefined && deleted !== true && (
          <QuotaPanel
            key={project}
            project={project}
            onClose={() => void navigate({ search: (before) => without(before, 'project'), resetScroll: false })}
          />
        )}
        <Toolbar label="Filter of the projects">
          <SearchBox
            label="Search"
            placeholder="Part of a name"
            value={search}
            onSearch={(text) =>
              void navigate({ search: (before) => given({ ...without(before, 'cursor'), search: textParam(text) }) })
            }
          />
        </Toolbar>
        <List />
      </Tabs>
      {creating && (
        <CreateProjectDialog
          onClose={() => {
            setCreating(false)
          }}
        />
      )}
    </Page>
  )
}

function List(): ReactNode {
  const { deleted, project, search, cursor } = route.useSearch()
  const navigate = route.useNavigate()
  const projects = useQuery(projectsQuery(given({ deleted, search, cursor })))
  return (
    <Loaded query={projects}>
      {({ items, next_cursor }) => (
        <>
          {deleted ? (
            <DeletedTable projects={items} search={search} />
          ) : (
            <LivingTable
              projects={items}
              selected={project}
              search={search}
              onDeleted={({ name }) => {
                // What it may use is not shown of one that is gone.
                if (name === project) void navigate({ search: (before) => without(before, 'project'), resetScroll: false })
              }}
            />
          )}
          <Pager
            nextCursor={next_cursor}
            cursor={cursor}
            onCursor={(next) => void navigate({ search: (before) => given({ ...before, cursor: next }) })}
          />
        </>
      )}
    </Loaded>
  )
}
