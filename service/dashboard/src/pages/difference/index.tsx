import { useQuery } from '@tanstack/react-query'
import { createRoute, Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { differenceQuery } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { shellRoute } from '../../app/parent'
import { given } from '../../app/searchParams'
import { Bytes } from '../../components/Bytes'
import { Empty } from '../../components/Empty'
import { LinkButton } from '../../components/LinkButton'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { SearchBox } from '../../components/SearchBox'
import { SelectField } from '../../components/SelectField'
import { Stat, Stats } from '../../components/Stat'
import { Toolbar } from '../../components/Toolbar'
import { count } from '../../format/numbers'
import { DifferencesTable } from './DifferencesTable'
import { CHANGES, differenceSearch, type DifferenceSearch } from './search'
import styles from './difference.module.css'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/checkpoints/$checkpoint/differences/$other',
  validateSearch: differenceSearch,
  component: DifferencePage,
})

const PAGE = 50

function DifferencePage(): ReactNode {
  const { checkpoint, other } = route.useParams()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const difference = useQuery(differenceQuery(checkpoint, other, { ...given({ ...search }), limit: PAGE }))
  const onChange = (changes: DifferenceSearch): void => {
    void navigate({ search: (before) => ({ ...before, ...changes }), resetScroll: false })
  }
  return (
    <Page
      title={titleOf(difference.data)}
      crumbs={crumbsOf(checkpoint, difference.data)}
      actions={
        <LinkButton
          to="/checkpoints/$checkpoint/differences/$other"
          params={{ checkpoint: other, other: checkpoint }}
          search={search.search === undefined ? {} : { search: search.search }}
        >
          Swap the two
        </LinkButton>
      }
    >
      <Toolbar label="Filter of the differences">
        <SearchBox
          label="Search tensors"
          value={search.search ?? ''}
          placeholder="any part of a name"
          onSearch={(text) => {
            onChange({ search: text || undefined, cursor: undefined })
          }}
        />
        <SelectField
          label="Change"
          value={search.change ?? ''}
          options={[{ value: '', label: 'Any' }, ...CHANGES.map((value) => ({ value, label: value }))]}
          onChange={(change) => {
            onChange({ change: change === '' ? undefined : change, cursor: undefined })
          }}
        />
      </Toolbar>
      <Loaded query={difference}>
        {(found) => (
          <div className={styles.stack}>
            <Totals found={found} />
            <DifferencesTable rows={found.items} empty={<Nothing found={found} search={search} />} />
            <Pager
              nextCursor={found.next_cursor}
              cursor={search.cursor}
              onCursor={(following) => {
                onChange({ cursor: following })
              }}
            />
          </div>
        )}
      </Loaded>
    </Page>
  )
}

function Totals({ found }: { found: Message<'DifferenceAnswer'> }): ReactNode {
  return (
    <Stats>
      <Stat name="Here" value={<CheckpointLink checkpoint={found.checkpoint} />} note={nameOf(found.checkpoint)} />
      <Stat name="There" value={<CheckpointLink checkpoint={found.other} />} note={nameOf(found.other)} />
      <Stat name="Changed" value={count(found.changed)} note={<><Bytes value={found.changed_bytes} /> differ</>} />
      <Stat name="Added" value={count(found.added)} note="here only" />
      <Stat name="Removed" value={count(found.removed)} note="there only" />
      <Stat name="Reshaped" value={count(found.reshaped)} note="another type or shape" />
      <Stat name="Recut" value={count(found.recut)} note="cut otherwise, so they may differ" />
      <Stat name="Same" value={count(found.same)} note={<><Bytes value={found.same_bytes} /> alike</>} />
    </Stats>
  )
}

function CheckpointLink({ checkpoint }: { checkpoint: Message<'CheckpointSummary'> }): ReactNode {
  return (
    <Link to="/checkpoints/$checkpoint" params={{ checkpoint: checkpoint.id }}>
      Step {count(checkpoint.step)}
    </Link>
  )
}

function Nothing({ found, search }: { found: Message<'DifferenceAnswer'>; search: DifferenceSearch }): ReactNode {
  const all = found.added + found.removed + found.changed + found.reshaped + found.recut
  if (all > 0 && (search.change ?? search.search) !== undefined) return <Empty title="No difference is like that" />
  return <Empty title="The two hold the same tensors, bit for bit" />
}

function titleOf(found: Message<'DifferenceAnswer'> | undefined): string {
  if (found === undefined) return 'Difference of two checkpoints'
  return `Step ${count(found.checkpoint.step)} against step ${count(found.other.step)}`
}

function crumbsOf(id: string, found: Message<'DifferenceAnswer'> | undefined): ReactNode[] {
  const runs = (
    <Link key="runs" to="/runs">
      Runs
    </Link>
  )
  const checkpoint = (
    <Link key="checkpoint" to="/checkpoints/$checkpoint" params={{ checkpoint: id }}>
      {found === undefined ? id : `Step ${count(found.checkpoint.step)}`}
    </Link>
  )
  if (found === undefined) return [runs, checkpoint]
  const { project, run } = found.checkpoint
  return [
    runs,
    <Link key="run" to="/runs/$project/$run" params={{ project, run }}>
      {project}/{run}
    </Link>,
    checkpoint,
  ]
}

function nameOf({ project, run, attempt_number: attempt }: Message<'CheckpointSummary'>): string {
  return `${project}/${run}, attempt ${attempt}`
}
