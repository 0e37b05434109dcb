import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { runCheckpointsQuery, type RunName } from '../../api/run'
import { Timeline } from '../../charts/Timeline'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { Panel } from '../../components/Panel'
import { CheckpointsFilter } from './CheckpointsFilter'
import { CheckpointsTable } from './CheckpointsTable'
import { isFiltered, listFilter, type RunSearch } from './search'
import styles from './run.module.css'

/** As many as the API gives at once. */
export const TIMELINE_PAGE = 200

export interface ViewProps {
  name: RunName
  search: RunSearch
  attempts: readonly Message<'AttemptInfo'>[]
  /** Changes the address; what is not named stays. */
  onChange: (changes: Partial<RunSearch>) => void
}

export function timelineFilter(search: RunSearch): { limit: number; cursor?: string } {
  return { limit: TIMELINE_PAGE, ...(search.older === undefined ? {} : { cursor: search.older }) }
}

/** The timeline of the newest checkpoints, and the list of all of them. */
export function CheckpointsView(props: ViewProps): ReactNode {
  const { name, search, attempts, onChange } = props
  const shown = useQuery(runCheckpointsQuery(name, timelineFilter(search)))
  const listed = useQuery(runCheckpointsQuery(name, listFilter(search)))
  const { state, step_min, step_max, pinned, tag, attempt, on_line } = search
  return (
    <div className={styles.stack}>
      <Panel title="Timeline">
        <Loaded query={shown}>
          {({ items, next_cursor }) => (
            <div className={styles.stack}>
              {items.length === 0 ? <NothingSaved name={name} /> : <Timeline checkpoints={items} attempts={attempts} />}
              <Pager
                nextCursor={next_cursor}
                isFirst={search.older === undefined}
                onFirst={() => {
                  onChange({ older: undefined })
                }}
                onNext={(older) => {
                  onChange({ older })
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
              empty={isFiltered(search) ? <Empty title="No checkpoint is like that" /> : <NothingSaved name={name} />}
            />
            <Pager
              nextCursor={next_cursor}
              isFirst={search.cursor === undefined}
              onFirst={() => {
                onChange({ cursor: undefined })
              }}
              onNext={(cursor) => {
                onChange({ cursor })
              }}
            />
          </>
        )}
      </Loaded>
    </div>
  )
}

function NothingSaved({ name }: { name: RunName }): ReactNode {
  return (
    <Empty
      title="The run has no checkpoint yet"
      command={`shardkeep push ./weights ${name.project}/${name.run} --step 0`}
    >
      Training saves into it with <code>keeper.step</code>; files become a checkpoint with
    </Empty>
  )
}
