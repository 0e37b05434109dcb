import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { asProblem } from '../api/problem'
import { projectChoicesQuery } from '../api/projects'
import styles from './Field.module.css'
import { TextField } from './TextField'
import { useDraft } from './useDraft'
import { useSettled } from './useSettled'

export interface ProjectFieldProps {
  label?: string
  hideLabel?: boolean
  /** The project that is chosen, as the URL has it; undefined for all. */
  value: string | undefined
  onChange: (project: string | undefined) => void
}

/** Chooses one project of however many: a part of its name has the service suggest some. Enter, or a name as suggested, takes effect. */
export function ProjectField(props: ProjectFieldProps): ReactNode {
  const { label = 'Project', hideLabel = false, value = '', onChange } = props
  const { text, type, sent, isSent } = useDraft(value)
  const found = useQuery(projectChoicesQuery(useSettled(text.trim())))
  const names = found.data?.items.map(({ name }) => name) ?? []
  const choose = (name: string): void => {
    if (name === value) return
    sent(name)
    onChange(name === '' ? undefined : name)
  }
  return (
    <form
      className={styles.alone}
      onSubmit={(event) => {
        event.preventDefault()
        choose(text.trim())
      }}
    >
      <TextField
        label={label}
        hideLabel={hideLabel}
        value={text}
        placeholder="All projects"
        suggestions={names}
        error={found.error === null ? undefined : asProblem(found.error).detail}
        onChange={(next) => {
          type(next)
          if (next === '' || names.includes(next)) choose(next)
        }}
        onBlur={() => {
          // What was not chosen is not what the page shows.
          if (!isSent) type(value)
        }}
      />
    </form>
  )
}
