import type { ReactNode } from 'react'
import { given } from '../../app/searchParams'
import { Button } from '../../components/Button'
import { CheckField } from '../../components/CheckField'
import { ProjectField } from '../../components/ProjectField'
import { Toolbar } from '../../components/Toolbar'
import type { AccessSearch } from '.'
import styles from './access.module.css'

type Filter = Omit<AccessSearch, 'cursor'>

export interface TokensFilterProps {
  filter: Filter
  onFilter: (filter: Filter) => void
}

export function TokensFilter({ filter, onFilter }: TokensFilterProps): ReactNode {
  return (
    <>
      <Toolbar label="Filter of the tokens">
        <ProjectField
          label="May see the project"
          value={filter.project}
          onChange={(project) => {
            onFilter(given({ ...filter, project }))
          }}
        />
        <CheckField
          label="Also expired and revoked"
          checked={filter.all === true}
          onChange={(all) => {
            onFilter(given({ ...filter, all: all ? (true as const) : undefined }))
          }}
        />
      </Toolbar>
      {filter.parent !== undefined && (
        <p className={styles.narrowed}>
          <span>
            Only those that <code>{filter.parent}</code> minted for jobs.
          </span>
          <Button
            onClick={() => {
              onFilter(given({ ...filter, parent: undefined }))
            }}
          >
            Show all tokens
          </Button>
        </p>
      )}
    </>
  )
}
