import type { ReactNode } from 'react'
import { isUnfinished } from '../../api/checkpoints'
import { RanksList } from './RanksList'
import type { ViewProps } from './views'

export function RanksView({ checkpoint, search, onChange }: ViewProps): ReactNode {
  return (
    <RanksList
      checkpoint={checkpoint.id}
      running={isUnfinished(checkpoint)}
      state={search.rank_state}
      cursor={search.cursor}
      onChange={({ cursor, ...changes }) => {
        onChange({ cursor, ...('state' in changes ? { rank_state: changes.state } : {}) })
      }}
    />
  )
}
