import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { ranksQuery } from '../../api/checkpoints'
import { given } from '../../app/searchParams'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { SelectField } from '../../components/SelectField'
import { Toolbar } from '../../components/Toolbar'
import { RanksTable } from './RanksTable'
import { rankWords } from './rankWords'
import { RANK_STATES, type RankState } from './search'
import styles from './checkpoint.module.css'

const PAGE = 100

export interface RanksListProps {
  checkpoint: string
  /** Whether it is still being saved: then the list is live. */
  running: boolean
  /** What it is narrowed to. */
  state: RankState | undefined
  cursor: string | undefined
  /** Another choice or page; what is not named stays. */
  onChange: (changes: { state?: RankState | undefined; cursor: string | undefined }) => void
}

/** The ranks of a checkpoint, a page at a time. */
export function RanksList({ checkpoint, running, state, cursor, onChange }: RanksListProps): ReactNode {
  const ranks = useQuery(ranksQuery(checkpoint, { ...given({ cursor, state }), limit: PAGE }, running))
  return (
    <div className={styles.stack}>
      <Toolbar label="Filter of the ranks">
        <SelectField
          label="State"
          value={state ?? ''}
          options={[
            { value: '', label: 'Any' },
            ...RANK_STATES.map((value) => ({ value, label: rankWords(value, running) })),
          ]}
          onChange={(value) => {
            onChange({ state: value === '' ? undefined : value, cursor: undefined })
          }}
        />
      </Toolbar>
      <Loaded query={ranks}>
        {({ items, next_cursor }) => (
          <>
            <RanksTable
              checkpoint={checkpoint}
              ranks={items}
              running={running}
              empty={<Empty title={state === undefined ? 'It has no ranks' : 'No rank is like that'} />}
            />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
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
