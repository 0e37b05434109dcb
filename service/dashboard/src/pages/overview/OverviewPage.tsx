import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { overviewQuery } from '../../api/overview'
import { CollectionPanel } from '../../components/CollectionPanel'
import { Empty } from '../../components/Empty'
import { Guarded, isTooNarrow } from '../../components/Guarded'
import { Page } from '../../components/Page'
import { BackgroundPanel } from './BackgroundPanel'
import { Figures } from './Figures'
import { GrowthPanel } from './GrowthPanel'
import { IntegrityPanel } from './IntegrityPanel'
import styles from './OverviewPage.module.css'
import { SavesPanel } from './SavesPanel'
import { windowOf } from './search'
import { WindowChoice } from './WindowChoice'

/** What is stored, how it grows, how saves went, and what the service does by itself. */
export function OverviewPage(): ReactNode {
  const search = useSearch({ from: '/shell/' })
  const navigate = useNavigate()
  const window = windowOf(search)
  const query = useQuery(overviewQuery(window.hours, search.project))
  const choice = <WindowChoice search={search} onChange={(next) => void navigate({ to: '/', search: next })} />
  return (
    <Page title="Overview" actions={isTooNarrow(query.error) ? undefined : choice}>
      <Guarded query={query} scope="read" reaching="projects">
        {(overview) => (
          <>
            <Figures overview={overview} window={window} project={search.project} />
            {overview.runs === 0 && <NothingYet project={search.project} />}
            <div className={styles.panels}>
              <GrowthPanel overview={overview} window={window} />
              <SavesPanel overview={overview} window={window} project={search.project} />
              <IntegrityPanel overview={overview} project={search.project} />
              {overview.collection !== null && <CollectionPanel collection={overview.collection} />}
              {overview.outbox_entries !== null && (
                <BackgroundPanel workers={overview.workers} outboxEntries={overview.outbox_entries} now={overview.now} />
              )}
            </div>
          </>
        )}
      </Guarded>
    </Page>
  )
}

function NothingYet({ project = 'my-project' }: { project: string | undefined }): ReactNode {
  return (
    <section aria-label="Getting started" className={styles.start}>
      <Empty title="No runs yet" command={`shardkeep push model.safetensors ${project}/my-run --step 0`}>
        Training makes its run with the first save. A checkpoint from disk makes one too:
      </Empty>
    </section>
  )
}
