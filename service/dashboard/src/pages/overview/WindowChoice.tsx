import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { projectChoicesQuery } from '../../api/projects'
import { SelectField } from '../../components/SelectField'
import { given } from '../../app/searchParams'
import styles from './OverviewPage.module.css'
import { WINDOWS, windowOf, type OverviewSearch } from './search'

const ALL = ''

export interface WindowChoiceProps {
  search: OverviewSearch
  onChange: (search: OverviewSearch) => void
}

/** Of which project, and since when. */
export function WindowChoice({ search, onChange }: WindowChoiceProps): ReactNode {
  const { data } = useQuery(projectChoicesQuery)
  const names = new Set(data?.items.map(({ name }) => name))
  if (search.project !== undefined) names.add(search.project)
  const projects = [{ value: ALL, label: 'All projects' }, ...Array.from(names, (name) => ({ value: name, label: name }))]
  return (
    <div className={styles.choice}>
      <SelectField
        label="Project"
        hideLabel
        value={search.project ?? ALL}
        options={projects}
        onChange={(project) => {
          onChange(given({ ...search, project: project || undefined }))
        }}
      />
      <SelectField
        label="Window"
        hideLabel
        value={windowOf(search).value}
        options={WINDOWS}
        onChange={(value) => {
          onChange(given({ ...search, hours: WINDOWS.find((window) => window.value === value)?.hours }))
        }}
      />
    </div>
  )
}
