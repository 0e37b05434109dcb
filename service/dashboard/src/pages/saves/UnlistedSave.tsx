import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { checkpointQuery, isUnfinished } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { Button } from '../../components/Button'
import { Loaded } from '../../components/Loaded'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { saveName } from './saveName'
import { SaveRanks } from './SaveRanks'
import type { SavesSearch } from './search'
import styles from './saves.module.css'

export interface UnlistedSaveProps {
  /** A checkpoint's id. */
  save: string
  search: SavesSearch
  onChange: (changes: SavesSearch) => void
  onClose: () => void
}

/** A save that is looked at and not in the list: it is over, or on another page of the list. */
export function UnlistedSave({ save, search, onChange, onClose }: UnlistedSaveProps): ReactNode {
  const found = useQuery(checkpointQuery(save))
  return (
    <Loaded query={found}>
      {(checkpoint) =>
        isUnfinished(checkpoint) ? (
          <SaveRanks checkpoint={checkpoint} search={search} onChange={onChange} />
        ) : (
          <EndedSave checkpoint={checkpoint} onClose={onClose} />
        )
      }
    </Loaded>
  )
}

interface EndedSaveProps {
  checkpoint: Message<'CheckpointInfo'>
  onClose: () => void
}

/** How it ended; its own page says the rest. */
function EndedSave({ checkpoint, onClose }: EndedSaveProps): ReactNode {
  const { id, state, abort, committed_at: committed } = checkpoint
  return (
    <Panel title={`The save of ${saveName(checkpoint)} is over`} actions={<Button onClick={onClose}>Close</Button>}>
      <div className={styles.stack}>
        <p className={styles.ended}>
          <StateBadge state={state} />
          {committed !== null && <When time={committed} />}
          {abort !== null && <span>{abort.reason}</span>}
        </p>
        <p>
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint: id }} search={{ view: 'ranks' }}>
            Show this checkpoint and its ranks
          </Link>
        </p>
      </div>
    </Panel>
  )
}
