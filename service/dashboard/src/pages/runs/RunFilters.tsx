import type { ReactNode } from 'react'
import { ProjectField } from '../../components/ProjectField'
import { SearchBox } from '../../components/SearchBox'
import { SelectField } from '../../components/SelectField'
import { Toolbar } from '../../components/Toolbar'
import type { ChangeSearch } from './RunsPage'
import { STATES, type RunsSearch } from './search'

const ANY = ''
const STATE_OPTIONS = [
  { value: ANY, label: 'Any' },
  { value: 'saving', label: 'Saving' },
  { value: 'idle', label: 'Idle' },
  { value: 'new', label: 'New: nothing committed' },
] as const

export function RunFilters({ search, onChange }: { search: RunsSearch; onChange: ChangeSearch }): ReactNode {
  return (
    <Toolbar label="Filters">
      <SearchBox
        label="Search"
        placeholder="Name of run or project"
        value={search.search ?? ''}
        onSearch={(text) => {
          onChange({ search: text.trim() || undefined })
        }}
      />
      <ProjectField
        value={search.project}
        onChange={(project) => {
          onChange({ project })
        }}
      />
      {search.tab === undefined && (
        <SelectField
          label="State"
          value={search.state ?? ANY}
          options={STATE_OPTIONS}
          onChange={(state) => {
            onChange({ state: STATES.find((known) => known === state) })
          }}
        />
      )}
    </Toolbar>
  )
}
