import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { projectChoicesQuery } from '../../api/projects'
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
  const { data } = useQuery(projectChoicesQuery)
  const names = new Set(data?.items.map(({ name }) => name))
  if (search.project !== undefined) names.add(search.project)
  const projects = [{ value: ANY, label: 'All' }, ...Array.from(names, (name) => ({ value: name, label: name }))]
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
      <SelectField
        label="Project"
        value={search.project ?? ANY}
        options={projects}
        onChange={(project) => {
          onChange({ project: project || undefined })
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
