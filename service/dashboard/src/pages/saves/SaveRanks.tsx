import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Panel } from '../../components/Panel'
import { RanksList } from '../checkpoint/RanksList'
import { saveName } from './saveName'
import type { SavesSearch } from './search'

export interface SaveRanksProps {
  /** One that is still being saved. */
  checkpoint: Message<'CheckpointSummary'>
  search: SavesSearch
  onChange: (changes: SavesSearch) => void
}

/** The ranks of one save, live. */
export function SaveRanks({ checkpoint, search, onChange }: SaveRanksProps): ReactNode {
  return (
    <Panel title={`Ranks of ${saveName(checkpoint)}`}>
      <RanksList
        checkpoint={checkpoint.id}
        running
        state={search.rank_state}
        cursor={search.ranks}
        onChange={({ cursor, ...changes }) => {
          onChange({ ranks: cursor, ...('state' in changes ? { rank_state: changes.state } : {}) })
        }}
      />
    </Panel>
  )
}
