import { useQuery } from '@tanstack/react-query'
import { createRoute } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { savesQuery } from '../../api/saves'
import { shellRoute } from '../../app/parent'
import { given } from '../../app/searchParams'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { TextField } from '../../components/TextField'
import { Toolbar } from '../../components/Toolbar'
import { count } from '../../format/numbers'
import { AbortDialog } from './AbortDialog'
import { SaveRanks } from './SaveRanks'
import { SavesTable } from './SavesTable'
import { savesSearch, type SavesSearch } from './search'
import styles from './saves.module.css'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/saves',
  validateSearch: savesSearch,
  component: SavesPage,
})

const PAGE = 50

function SavesPage(): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const { project, cursor, save } = search
  const saves = useQuery(savesQuery({ limit: PAGE, ...given({ project, cursor }) }))
  const [aborting, setAborting] = useState<Message<'CheckpointSummary'> | null>(null)
  const onChange = (changes: SavesSearch): void => {
    void navigate({ search: (before) => ({ ...before, ...changes }), resetScroll: false })
  }
  return (
    <Page title="Saves in progress">
      <ProjectField key={project} project={project} onChange={onChange} />
      <Loaded query={saves}>
        {({ page, samples }) => (
          <div className={styles.stack}>
            <SavesTable
              saves={page.items}
              samples={samples}
              selected={save}
              empty={<NothingSaving project={project} />}
              onSelect={(checkpoint) => {
                onChange({ save: checkpoint, ranks: undefined, rank_state: undefined })
              }}
              onAbort={setAborting}
            />
            <Pager
              nextCursor={page.next_cursor}
              isFirst={cursor === undefined}
              onFirst={() => {
                onChange({ cursor: undefined })
              }}
              onNext={(following) => {
                onChange({ cursor: following })
              }}
            />
            {save !== undefined && (
              <SaveRanks checkpoint={save} name={nameOf(save, page.items)} search={search} onChange={onChange} />
            )}
            <p className={styles.soft}>
              Looked at every few seconds while this page is in sight. Rates are of the last half minute.
            </p>
          </div>
        )}
      </Loaded>
      {aborting !== null && (
        <AbortDialog
          checkpoint={aborting}
          onClose={() => {
            setAborting(null)
          }}
        />
      )}
    </Page>
  )
}

function ProjectField({ project, onChange }: { project: string | undefined; onChange: (changes: SavesSearch) => void }): ReactNode {
  const [text, setText] = useState(project ?? '')
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        onChange({ project: text.trim() || undefined, cursor: undefined })
      }}
    >
      <Toolbar label="Filter of the saves">
        <TextField label="Project" value={text} onChange={setText} placeholder="all, or a name and Enter" />
      </Toolbar>
    </form>
  )
}

function NothingSaving({ project }: { project: string | undefined }): ReactNode {
  const where = project === undefined ? 'Nothing is being saved now' : `Nothing of ${project} is being saved now`
  return (
    <Empty title={where} command={`shardkeep save-now ${project ?? 'my-project'}/my-run`}>
      Training saves when <code>keeper.step</code> says so. For a checkpoint at its next step press{' '}
      <q>Checkpoint now</q> on the page of a run, or ask with
    </Empty>
  )
}

function nameOf(id: string, saves: readonly Message<'SaveInProgress'>[]): string {
  const found = saves.find(({ checkpoint }) => checkpoint.id === id)?.checkpoint
  return found === undefined ? id : `step ${count(found.step)} of ${found.project}/${found.run}`
}
