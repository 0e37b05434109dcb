import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { ranksQuery } from '../../api/checkpoints'
import { given } from '../../app/searchParams'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { Panel } from '../../components/Panel'
import { SelectField } from '../../components/SelectField'
import { RanksTable } from '../checkpoint/RanksTable'
import { RANK_STATES } from '../checkpoint/search'
import type { SavesSearch } from './search'
import styles from './saves.module.css'

const PAGE = 100

export interface SaveRanksProps {
  checkpoint: string
  /** What it is, for the title. */
  name: string
  search: SavesSearch
  onChange: (changes: SavesSearch) => void
}

/** The ranks of one save, live. */
export function SaveRanks({ checkpoint, name, search, onChange }: SaveRanksProps): ReactNode {
  const { ranks: cursor, rank_state: state } = search
  const ranks = useQuery(ranksQuery(checkpoint, { ...given({ cursor, state }), limit: PAGE }, true))
  return (
    <Panel
      title={`Ranks of ${name}`}
      actions={
        <SelectField
          label="State of the ranks"
          hideLabel
          value={state ?? ''}
          options={[{ value: '', label: 'Any state' }, ...RANK_STATES.map((value) => ({ value, label: value }))]}
          onChange={(value) => {
            onChange({ rank_state: value === '' ? undefined : value, ranks: undefined })
          }}
        />
      }
    >
      <Loaded query={ranks}>
        {({ items, next_cursor }) => (
          <div className={styles.stack}>
            <RanksTable
              checkpoint={checkpoint}
              ranks={items}
              running
              empty={<Empty title={state === undefined ? 'It has no ranks' : `No rank is ${state}`} />}
            />
            <Pager
              nextCursor={next_cursor}
              isFirst={cursor === undefined}
              onFirst={() => {
                onChange({ ranks: undefined })
              }}
              onNext={(following) => {
                onChange({ ranks: following })
              }}
            />
          </div>
        )}
      </Loaded>
    </Panel>
  )
}
