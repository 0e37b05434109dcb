import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { projectChoicesQuery } from '../../api/projects'
import { given } from '../../app/searchParams'
import { Button } from '../../components/Button'
import { CheckField } from '../../components/CheckField'
import { SelectField } from '../../components/SelectField'
import { Toolbar } from '../../components/Toolbar'
import type { AccessSearch } from '.'
import styles from './access.module.css'

type Filter = Omit<AccessSearch, 'cursor'>

export interface TokensFilterProps {
  filter: Filter
  onFilter: (filter: Filter) => void
}

export function TokensFilter({ filter, onFilter }: TokensFilterProps): ReactNode {
  const projects = useQuery(projectChoicesQuery)
  const names = projects.data?.items.map(({ name }) => name) ?? []
  const shown = filter.project === undefined || names.includes(filter.project) ? names : [filter.project, ...names]
  return (
    <>
      <Toolbar label="Filter of the tokens">
        <SelectField
          label="May see the project"
          value={filter.project ?? ''}
          options={[{ value: '', label: 'any' }, ...shown.map((name) => ({ value: name, label: name }))]}
          onChange={(project) => {
            onFilter(given({ ...filter, project: project === '' ? undefined : project }))
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
