import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { STATES } from '../../charts/marks'
import { Button } from '../../components/Button'
import { CheckField } from '../../components/CheckField'
import { SelectField } from '../../components/SelectField'
import { TextField } from '../../components/TextField'
import { Toolbar } from '../../components/Toolbar'
import { attemptOptions } from './attemptOptions'
import { isFiltered, stepParam, type RunSearch } from './search'
import styles from './run.module.css'

export interface CheckpointsFilterProps {
  search: RunSearch
  attempts: readonly Message<'AttemptInfo'>[]
  onChange: (changes: Partial<RunSearch>) => void
}

const ALL: RunSearch = {
  state: undefined,
  step_min: undefined,
  step_max: undefined,
  pinned: undefined,
  tag: undefined,
  attempt: undefined,
  on_line: undefined,
}

/** What the list is narrowed to. Choices take effect at once, what is typed with Enter or the button. */
export function CheckpointsFilter({ search, attempts, onChange }: CheckpointsFilterProps): ReactNode {
  const [least, setLeast] = useState(String(search.step_min ?? ''))
  const [most, setMost] = useState(String(search.step_max ?? ''))
  const [tag, setTag] = useState(search.tag ?? '')
  return (
    <form
      className={styles.stack}
      onSubmit={(event) => {
        event.preventDefault()
        onChange({ step_min: stepParam(least), step_max: stepParam(most), tag: tag.trim() || undefined })
      }}
    >
      <Toolbar label="Filter of the checkpoints">
        <SelectField
          label="State"
          value={search.state ?? ''}
          options={[{ value: '', label: 'Any' }, ...STATES.map((state) => ({ value: state, label: state }))]}
          onChange={(state) => {
            onChange({ state: state === '' ? undefined : state })
          }}
        />
        <SelectField
          label="Attempt"
          value={search.attempt ?? ''}
          options={attemptOptions(attempts, search.attempt)}
          onChange={(attempt) => {
            onChange({ attempt: attempt === '' ? undefined : attempt })
          }}
        />
        <TextField label="From step" type="number" min={0} value={least} onChange={setLeast} />
        <TextField label="To step" type="number" min={0} value={most} onChange={setMost} />
        <TextField label="Tag" value={tag} onChange={setTag} />
        <CheckField
          label="Pinned only"
          checked={search.pinned === true}
          onChange={(pinned) => {
            onChange({ pinned: pinned || undefined })
          }}
        />
        <CheckField
          label="On the line only"
          checked={search.on_line === true}
          onChange={(on) => {
            onChange({ on_line: on || undefined })
          }}
        />
      </Toolbar>
      <div className={styles.words}>
        <Button type="submit">Filter</Button>
        {isFiltered(search) && (
          <Button
            kind="quiet"
            onClick={() => {
              onChange(ALL)
            }}
          >
            Show all checkpoints
          </Button>
        )}
      </div>
    </form>
  )
}
