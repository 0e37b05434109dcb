import { useQuery } from '@tanstack/react-query'
import { createRoute, Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { checkpointQuery } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { shellRoute } from '../../app/parent'
import { useRefusal } from '../../app/signedIn'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { ResumeSnippets } from '../../components/ResumeSnippets'
import { Tabs } from '../../components/Tabs'
import { count } from '../../format/numbers'
import { CheckpointActions } from './CheckpointActions'
import { CheckpointFigures } from './CheckpointFigures'
import { DamageView } from './DamageView'
import { RanksView } from './RanksView'
import { checkpointSearch, type CheckpointSearch, type CheckpointView } from './search'
import { SummaryView } from './SummaryView'
import { TagList } from './TagList'
import { TensorsView } from './TensorsView'
import { ValuesView } from './ValuesView'
import type { ViewProps } from './views'
import styles from './checkpoint.module.css'

type Checkpoint = Message<'CheckpointInfo'>

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/checkpoints/$checkpoint',
  validateSearch: checkpointSearch,
  component: CheckpointPage,
})

const SUMMARY = { id: 'summary', label: 'Summary' } as const
const RANKS = { id: 'ranks', label: 'Ranks' } as const
const TENSORS = { id: 'tensors', label: 'Tensors' } as const
const VALUES = { id: 'values', label: 'Values' } as const
const DAMAGE = { id: 'damage', label: 'Damage' } as const
const RESUME = { id: 'resume', label: 'Resume' } as const

function CheckpointPage(): ReactNode {
  const { checkpoint: id } = route.useParams()
  const found = useQuery(checkpointQuery(id))
  return (
    // One page from the beginning: its heading has the focus while the checkpoint is on its way, and keeps it.
    <Page
      title={titleOf(found.data)}
      crumbs={crumbsOf(found.data)}
      actions={found.data && <CheckpointActions key={id} checkpoint={found.data} />}
    >
      <Loaded query={found}>{(checkpoint) => <Parts key={id} checkpoint={checkpoint} />}</Loaded>
    </Page>
  )
}

function Parts({ checkpoint }: { checkpoint: Checkpoint }): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const writing = useRefusal('write')
  const tabs = tabsOf(checkpoint)
  const view = tabs.find(({ id }) => id === search.view)?.id ?? 'summary'
  const onChange = (changes: Partial<CheckpointSearch>): void => {
    void navigate({ search: (before) => ({ ...before, ...changes }), resetScroll: false })
  }
  return (
    <>
      <CheckpointFigures checkpoint={checkpoint} />
      <TagList checkpoint={checkpoint} refused={writing} />
      <Tabs
        label="Parts of the checkpoint"
        tabs={tabs}
        selected={view}
        onSelect={(chosen) => {
          // Each tab has its own list, so nothing of the last one's is kept.
          void navigate({ search: chosen === 'summary' ? {} : { view: chosen }, resetScroll: false })
        }}
      >
        <View view={view} checkpoint={checkpoint} search={search} onChange={onChange} />
      </Tabs>
    </>
  )
}

function titleOf(checkpoint: Checkpoint | undefined): string {
  if (checkpoint === undefined) return 'Checkpoint'
  return `Step ${count(checkpoint.step)} of ${checkpoint.project}/${checkpoint.run}`
}

function crumbsOf(checkpoint: Checkpoint | undefined): ReactNode[] {
  const runs = (
    <Link key="runs" to="/runs">
      Runs
    </Link>
  )
  if (checkpoint === undefined) return [runs]
  const { project, run } = checkpoint
  return [
    runs,
    <Link key="run" to="/runs/$project/$run" params={{ project, run }}>
      {project}/{run}
    </Link>,
  ]
}

function View({ view, ...props }: ViewProps & { view: CheckpointView }): ReactNode {
  const { id, step, project, run } = props.checkpoint
  switch (view) {
    case 'summary':
      return <SummaryView checkpoint={props.checkpoint} />
    case 'ranks':
      return <RanksView {...props} />
    case 'tensors':
      return <TensorsView {...props} />
    case 'values':
      return <ValuesView {...props} />
    case 'damage':
      return <DamageView {...props} />
    case 'resume':
      return (
        <div className={styles.stack}>
          <ResumeSnippets run={`${project}/${run}`} checkpoint={{ id, step }} />
        </div>
      )
  }
}

/** What is in it can be looked at while it is committed; what was found damaged, once it was. */
function tabsOf({ state, sequence }: Checkpoint): readonly { id: CheckpointView; label: string }[] {
  if (state === 'committed') return [SUMMARY, RANKS, TENSORS, VALUES, DAMAGE, RESUME]
  return sequence === null ? [SUMMARY, RANKS] : [SUMMARY, RANKS, DAMAGE]
}
