import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { isUnfinished, ranksQuery } from '../../api/checkpoints'
import { given } from '../../app/searchParams'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { SelectField } from '../../components/SelectField'
import { Toolbar } from '../../components/Toolbar'
import { RanksTable } from './RanksTable'
import { RANK_STATES } from './search'
import type { ViewProps } from './views'
import styles from './checkpoint.module.css'

const PAGE = 100

export function RanksView({ checkpoint, search, onChange }: ViewProps): ReactNode {
  const { cursor, rank_state: state } = search
  const running = isUnfinished(checkpoint)
  const ranks = useQuery(ranksQuery(checkpoint.id, { ...given({ cursor, state }), limit: PAGE }, running))
  return (
    <div className={styles.stack}>
      <Toolbar label="Filter of the ranks">
        <SelectField
          label="State"
          value={state ?? ''}
          options={[{ value: '', label: 'Any' }, ...RANK_STATES.map((value) => ({ value, label: value }))]}
          onChange={(value) => {
            onChange({ rank_state: value === '' ? undefined : value, cursor: undefined })
          }}
        />
      </Toolbar>
      <Loaded query={ranks}>
        {({ items, next_cursor }) => (
          <>
            <RanksTable
              checkpoint={checkpoint.id}
              ranks={items}
              running={running}
              empty={<Empty title={state === undefined ? 'It has no ranks' : `No rank is ${state}`} />}
            />
            <Pager
              nextCursor={next_cursor}
              isFirst={cursor === undefined}
              onFirst={() => {
                onChange({ cursor: undefined })
              }}
              onNext={(following) => {
                onChange({ cursor: following })
              }}
            />
          </>
        )}
      </Loaded>
    </div>
  )
}
