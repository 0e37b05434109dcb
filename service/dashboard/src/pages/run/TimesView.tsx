import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { runCheckpointsQuery, saveTimesQuery } from '../../api/run'
import { RankHeatMap } from '../../charts/RankHeatMap'
import { SaveBars } from '../../charts/SaveBars'
import { savePoints } from '../../charts/savePoints'
import { SlowestRanks } from '../../charts/SlowestRanks'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { Panel } from '../../components/Panel'
import { NothingSaved } from './NothingSaved'
import { bandOf } from './search'
import { timelineFilter, type ViewProps } from './views'
import styles from './run.module.css'

const SAVES = 50

/** How large and how fast saves were, and how long each rank took. */
export function TimesView({ name, run, search, onChange }: ViewProps): ReactNode {
  const shown = useQuery(runCheckpointsQuery(name, timelineFilter(search)))
  const cursor = search.saves
  const times = useQuery(saveTimesQuery(name, { limit: SAVES, ...(cursor === undefined ? {} : { cursor }) }))
  return (
    <div className={styles.stack}>
      <Panel title="Size, duration and throughput">
        <Loaded query={shown}>
          {({ items, next_cursor }) => {
            const points = savePoints(items)
            return (
              <>
                {points.length === 0 ? (
                  <NothingSaved run={run} title="Nothing is committed yet" />
                ) : (
                  <SaveBars points={points} />
                )}
                <Pager
                  nextCursor={next_cursor}
                  cursor={search.older}
                  onCursor={(following) => {
                    onChange({ older: following })
                  }}
                />
              </>
            )
          }}
        </Loaded>
      </Panel>
      <Loaded query={times}>
        {({ items, next_cursor }) => (
          <>
            <Panel title="Ranks by save">
              {items.length === 0 ? (
                <NothingSaved run={run} title="No save to show" />
              ) : (
                <RankHeatMap
                  key={search.ranks}
                  saves={items}
                  ranks={bandOf(search.ranks)}
                  onRanks={(ranks) => {
                    onChange({ ranks: ranks === undefined ? undefined : `${ranks.first}-${ranks.last}` })
                  }}
                />
              )}
              <Pager
                nextCursor={next_cursor}
                cursor={cursor}
                onCursor={(following) => {
                  onChange({ saves: following })
                }}
              />
            </Panel>
            {items.length > 0 && <SlowestRanks saves={items} />}
          </>
        )}
      </Loaded>
    </div>
  )
}
