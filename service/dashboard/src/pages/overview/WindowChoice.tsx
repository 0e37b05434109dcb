import type { ReactNode } from 'react'
import { ProjectField } from '../../components/ProjectField'
import { SelectField } from '../../components/SelectField'
import { given } from '../../app/searchParams'
import styles from './OverviewPage.module.css'
import { WINDOWS, windowOf, type OverviewSearch } from './search'

export interface WindowChoiceProps {
  search: OverviewSearch
  onChange: (search: OverviewSearch) => void
}

/** Of which project, and since when. */
export function WindowChoice({ search, onChange }: WindowChoiceProps): ReactNode {
  return (
    <div className={styles.choice}>
      <ProjectField
        hideLabel
        value={search.project}
        onChange={(project) => {
          onChange(given({ ...search, project }))
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
