import { useQuery } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import type { Place } from '../../api/retention'
import { runsQuery } from '../../api/runs'
import { Button } from '../../components/Button'
import { TextField } from '../../components/TextField'
import { useSettled } from '../../components/useSettled'
import { isName } from '../../format/names'
import styles from './retention.module.css'

const SUGGESTED = 20

export interface PlacePickerProps {
  place: Place
  /** A run, or undefined for the project. */
  onPick: (run: string | undefined) => void
}

/** Chooses between the policy of the project and that of one of its runs, which stands in its place. */
export function PlacePicker({ place, onPick }: PlacePickerProps): ReactNode {
  const [text, setText] = useState('')
  const search = useSettled(text.trim())
  const runs = useQuery(runsQuery({ project: place.project, search, sort: 'name', order: 'asc', limit: SUGGESTED }))
  const [error, setError] = useState<string | undefined>(undefined)
  return (
    <form
      className={styles.picker}
      onSubmit={(event) => {
        event.preventDefault()
        const run = text.trim()
        setError(isName(run) ? undefined : 'Name a run of this project.')
        if (!isName(run)) return
        setText('')
        onPick(run)
      }}
    >
      <TextField
        label="Policy of a run"
        value={text}
        onChange={setText}
        error={error}
        suggestions={runs.data?.items.map(({ name }) => name) ?? []}
        placeholder="name of a run"
      />
      <Button type="submit">Show</Button>
      {place.run !== undefined && (
        <Button
          onClick={() => {
            onPick(undefined)
          }}
        >
          Policy of the project
        </Button>
      )}
    </form>
  )
}
