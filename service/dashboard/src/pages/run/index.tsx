import { useQuery } from '@tanstack/react-query'
import { createRoute, Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { runQuery } from '../../api/run'
import { shellRoute } from '../../app/parent'
import { LinkButton } from '../../components/LinkButton'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { ResumeSnippets } from '../../components/ResumeSnippets'
import { Tabs } from '../../components/Tabs'
import { AttemptsView } from './AttemptsView'
import { CheckpointsView } from './CheckpointsView'
import { RunFigures } from './RunFigures'
import { SaveNowButton, SaveRequestStatus, useSaveNow } from './SaveNow'
import { runSearch, type RunSearch, type RunView } from './search'
import { TimesView } from './TimesView'
import type { ViewProps } from './views'
import styles from './run.module.css'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/runs/$project/$run',
  validateSearch: runSearch,
  component: RunPage,
})

const TABS: readonly { id: RunView; label: string }[] = [
  { id: 'checkpoints', label: 'Checkpoints' },
  { id: 'times', label: 'Sizes and times' },
  { id: 'attempts', label: 'Attempts' },
  { id: 'resume', label: 'Resume' },
]

function RunPage(): ReactNode {
  const name = route.useParams()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const run = useQuery(runQuery(name))
  const asking = useSaveNow(name)
  const view = search.view ?? 'checkpoints'
  const onChange = (changes: Partial<RunSearch>): void => {
    void navigate({ search: (before) => ({ ...before, ...changes }), resetScroll: false })
  }
  return (
    <Page
      title={`${name.project}/${name.run}`}
      crumbs={[
        <Link key="runs" to="/runs">
          Runs
        </Link>,
        <Link key="project" to="/runs" search={{ project: name.project }}>
          {name.project}
        </Link>,
      ]}
      actions={
        run.data && (
          <>
            <LinkButton to="/retention/$project" params={{ project: name.project }} search={{ run: name.run }}>
              Retention
            </LinkButton>
            <SaveNowButton asking={asking} />
          </>
        )
      }
    >
      <SaveRequestStatus name={name} asking={asking} failing={run.error !== null} />
      <Loaded query={run}>
        {(info) => (
          <>
            <RunFigures run={info} />
            <Tabs
              label="Parts of the run"
              tabs={TABS}
              selected={view}
              onSelect={(id) => {
                onChange({ view: id === 'checkpoints' ? undefined : id })
              }}
            >
              <View view={view} name={name} run={info} search={search} onChange={onChange} />
            </Tabs>
          </>
        )}
      </Loaded>
    </Page>
  )
}

function View({ view, ...props }: ViewProps & { view: RunView }): ReactNode {
  switch (view) {
    case 'checkpoints':
      return <CheckpointsView {...props} />
    case 'times':
      return <TimesView {...props} />
    case 'attempts':
      return <AttemptsView {...props} />
    case 'resume':
      return (
        <div className={styles.stack}>
          <ResumeSnippets run={`${props.name.project}/${props.name.run}`} />
        </div>
      )
  }
}
