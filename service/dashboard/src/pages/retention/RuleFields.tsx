import type { ReactNode } from 'react'
import { Button } from '../../components/Button'
import { TextField } from '../../components/TextField'
import { BestRuleFields } from './BestRuleFields'
import styles from './retention.module.css'
import type { BestFields, Faults, PolicyForm } from './rules'

const NEW_BEST: BestFields = { metric: '', mode: 'min', count: '1' }

export interface RuleFieldsProps {
  form: PolicyForm
  faults: Faults
  onChange: (change: (before: PolicyForm) => PolicyForm) => void
}

/** All the rules there are. An empty field is no rule. */
export function RuleFields({ form, faults, onChange }: RuleFieldsProps): ReactNode {
  const field = (name: Exclude<keyof PolicyForm, 'best'>) => ({
    value: form[name],
    error: faults[name],
    onChange: (value: string) => {
      onChange((before) => ({ ...before, [name]: value }))
    },
  })
  const putBest = (change: (before: readonly BestFields[]) => readonly BestFields[]): void => {
    onChange((before) => ({ ...before, best: change(before.best) }))
  }
  return (
    <>
      <div className={styles.fields}>
        <TextField label="Keep the last" hint="so many, along the run's line" placeholder="3" {...field('keepLast')} />
        <TextField
          label="Keep every … steps"
          hint="the first at or after each multiple, and step 0"
          placeholder="1000"
          {...field('everySteps')}
        />
        <TextField
          label="Keep with a tag"
          hint="names between blanks"
          placeholder="release golden"
          {...field('tags')}
        />
        <TextField
          label="Keep younger than"
          hint="since the commit, such as 14d or 12h"
          placeholder="14d"
          {...field('youngerThan')}
        />
        <TextField
          label="Off the line, keep for"
          hint="after a rollback left it, and what is damaged; 7d unless given"
          placeholder="7d"
          {...field('offLine')}
        />
      </div>
      <fieldset className={styles.bests}>
        <legend>Keep the best by a metric</legend>
        {form.best.map((fields, place) => (
          <BestRuleFields
            // A rule has no identity but its place.
            key={place}
            fields={fields}
            place={place}
            faults={faults}
            onChange={(changed) => {
              putBest((before) => before.map((other, at) => (at === place ? changed : other)))
            }}
            onRemove={() => {
              putBest((before) => before.filter((_, at) => at !== place))
            }}
          />
        ))}
        <div>
          <Button
            onClick={() => {
              putBest((before) => [...before, NEW_BEST])
            }}
          >
            Add a metric
          </Button>
        </div>
      </fieldset>
    </>
  )
}
