import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { attemptsQuery, runCheckpointsQuery } from '../../api/run'
import { Timeline } from '../../charts/Timeline'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { Panel } from '../../components/Panel'
import { ProblemNotice } from '../../components/ProblemNotice'
import { CheckpointsFilter } from './CheckpointsFilter'
import { CheckpointsTable } from './CheckpointsTable'
import { NothingSaved } from './NothingSaved'
import { isFiltered, listFilter } from './search'
import { TIMELINE_PAGE, timelineFilter, type ViewProps } from './views'
import styles from './run.module.css'

/** The timeline of the newest checkpoints, and the list of all of them. */
export function CheckpointsView({ name, run, search, onChange }: ViewProps): ReactNode {
  const known = useQuery(attemptsQuery(name, { limit: TIMELINE_PAGE }))
  const attempts = known.data?.items ?? []
  const shown = useQuery(runCheckpointsQuery(name, timelineFilter(search)))
  const listed = useQuery(runCheckpointsQuery(name, listFilter(search)))
  const { state, step_min, step_max, pinned, tag, attempt, on_line } = search
  return (
    <div className={styles.stack}>
      {known.error !== null && <ProblemNotice error={known.error} onRetry={() => void known.refetch()} />}
      <Panel title="Timeline">
        <Loaded query={shown}>
          {({ items, next_cursor }) => (
            <div className={styles.stack}>
              {items.length === 0 ? <NothingSaved run={run} /> : <Timeline checkpoints={items} attempts={attempts} />}
              <Pager
                nextCursor={next_cursor}
                cursor={search.older}
                onCursor={(following) => {
                  onChange({ older: following })
                }}
              />
            </div>
          )}
        </Loaded>
      </Panel>
      <h2>All checkpoints</h2>
      <CheckpointsFilter
        key={JSON.stringify({ state, step_min, step_max, pinned, tag, attempt, on_line })}
        search={search}
        attempts={attempts}
        onChange={(changes) => {
          onChange({ ...changes, cursor: undefined })
        }}
      />
      <Loaded query={listed}>
        {({ items, next_cursor }) => (
          <>
            <CheckpointsTable
              rows={items}
              empty={isFiltered(search) ? <Empty title="No checkpoint is like that" /> : <NothingSaved run={run} />}
            />
            <Pager
              nextCursor={next_cursor}
              cursor={search.cursor}
              onCursor={(following) => {
                onChange({ cursor: following })
              }}
            />
          </>
        )}
      </Loaded>
    </div>
  )
}
