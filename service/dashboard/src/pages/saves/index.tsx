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
import { ProjectField } from '../../components/ProjectField'
import { Toolbar } from '../../components/Toolbar'
import { AbortDialog } from './AbortDialog'
import { SaveRanks } from './SaveRanks'
import { SavesTable } from './SavesTable'
import { UnlistedSave } from './UnlistedSave'
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
      <Toolbar label="Filter of the saves">
        <ProjectField
          value={project}
          onChange={(wanted) => {
            onChange({ project: wanted, cursor: undefined })
          }}
        />
      </Toolbar>
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
              cursor={cursor}
              onCursor={(following) => {
                onChange({ cursor: following })
              }}
            />
            {save !== undefined && (
              <Ranks save={save} listed={page.items} search={search} onChange={onChange} />
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

function NothingSaving({ project }: { project: string | undefined }): ReactNode {
  const where = project === undefined ? 'Nothing is being saved now' : `Nothing of ${project} is being saved now`
  return (
    <Empty title={where} command={`shardkeep save-now ${project ?? 'my-project'}/my-run`}>
      Training saves when <code>keeper.step</code> says so. For a checkpoint at its next step press{' '}
      <q>Checkpoint now</q> on the page of a run, or ask with
    </Empty>
  )
}

interface RanksProps {
  /** The checkpoint whose ranks are looked at. */
  save: string
  listed: readonly Message<'SaveInProgress'>[]
  search: SavesSearch
  onChange: (changes: SavesSearch) => void
}

function Ranks({ save, listed, search, onChange }: RanksProps): ReactNode {
  const shown = listed.find(({ checkpoint }) => checkpoint.id === save)?.checkpoint
  if (shown !== undefined) return <SaveRanks checkpoint={shown} search={search} onChange={onChange} />
  const close = (): void => {
    onChange({ save: undefined, ranks: undefined, rank_state: undefined })
  }
  return <UnlistedSave key={save} save={save} search={search} onChange={onChange} onClose={close} />
}
