import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { liveRunsQuery } from '../../api/runs'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { Tabs } from '../../components/Tabs'
import { DeletedRunsTable } from './DeletedRunsTable'
import { RunFilters } from './RunFilters'
import { RunsTable } from './RunsTable'
import { changed, filterOf } from './search'

const TABS = [
  { id: 'living', label: 'Runs' },
  { id: 'deleted', label: 'Deleted' },
] as const

/** All runs the token may see, a page at a time. */
export function RunsPage(): ReactNode {
  const search = useSearch({ from: '/shell/runs' })
  const navigate = useNavigate({ from: '/runs' })
  const query = useQuery(liveRunsQuery(filterOf(search)))
  // From what the address says by then: a search that is sent after a pause undoes no filter chosen meanwhile.
  const change: ChangeSearch = (wanted) => void navigate({ search: (before) => changed(before, wanted) })
  const tab = search.tab ?? 'living'
  const Table = tab === 'deleted' ? DeletedRunsTable : RunsTable
  return (
    <Page title="Runs">
      <Tabs
        label="Which runs"
        tabs={TABS}
        selected={tab}
        onSelect={(id) => {
          change({ tab: id === 'deleted' ? id : undefined, state: undefined })
        }}
      >
        <RunFilters search={search} onChange={change} />
        <Loaded query={query}>
          {({ items, next_cursor: nextCursor }) => (
            <>
              <Table runs={items} search={search} onChange={change} />
              <Pager
                nextCursor={nextCursor}
                cursor={search.cursor}
                onCursor={(following) => {
                  change({ cursor: following })
                }}
              />
            </>
          )}
        </Loaded>
      </Tabs>
    </Page>
  )
}

export type ChangeSearch = (change: Parameters<typeof changed>[1]) => void
