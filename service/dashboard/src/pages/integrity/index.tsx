import { useQuery } from '@tanstack/react-query'
import { createRoute } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { findingsQuery, integrityQuery } from '../../api/integrity'
import { overviewQuery } from '../../api/overview'
import { shellRoute } from '../../app/parent'
import { given, oneOfParam, textParam } from '../../app/searchParams'
import { CollectionPanel } from '../../components/CollectionPanel'
import { Guarded, isTooNarrow } from '../../components/Guarded'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { Tabs } from '../../components/Tabs'
import { CoveragePanel } from './CoveragePanel'
import { FindingsTable } from './FindingsTable'
import { WhatToDo } from './WhatToDo'

const VIEWS = ['open', 'resolved'] as const
const WINDOW_HOURS = 24

interface IntegritySearch {
  show?: (typeof VIEWS)[number]
  cursor?: string
}

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/integrity',
  validateSearch: (raw): IntegritySearch => given({ show: oneOfParam(raw.show, VIEWS), cursor: textParam(raw.cursor) }),
  component: IntegrityPage,
})

function IntegrityPage(): ReactNode {
  const integrity = useQuery(integrityQuery())
  const overview = useQuery(overviewQuery(WINDOW_HOURS))
  if (isTooNarrow(overview.error)) {
    // All of this page needs the same: it is said once.
    return (
      <Page title="Integrity">
        <Guarded query={overview} scope="read" reaching="projects">
          {() => null}
        </Guarded>
      </Page>
    )
  }
  return (
    <Page title="Integrity">
      <Loaded query={integrity}>
        {(info) => (
          <>
            <CoveragePanel info={info} quarantined={overview.data?.quarantined_checkpoints ?? null} />
            {info.open_findings > 0 && <WhatToDo />}
          </>
        )}
      </Loaded>
      <Findings />
      <Loaded query={overview}>{({ collection }) => <CollectionPanel collection={collection} />}</Loaded>
    </Page>
  )
}

function Findings(): ReactNode {
  const { show = 'open', cursor } = route.useSearch()
  const navigate = route.useNavigate()
  const findings = useQuery(findingsQuery(given({ resolved: show === 'resolved', cursor })))
  return (
    <Tabs
      label="Findings"
      tabs={[
        { id: 'open', label: 'Open findings' },
        { id: 'resolved', label: 'Resolved' },
      ]}
      selected={show}
      onSelect={(next) => void navigate({ search: given({ show: next === 'open' ? undefined : next }) })}
    >
      <Loaded query={findings}>
        {({ items, next_cursor }) => (
          <>
            <FindingsTable findings={items} resolved={show === 'resolved'} />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
              onCursor={(next) => void navigate({ search: (before) => given({ ...before, cursor: next }) })}
            />
          </>
        )}
      </Loaded>
    </Tabs>
  )
}
