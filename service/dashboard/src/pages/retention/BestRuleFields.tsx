import type { ReactNode } from 'react'
import { Button } from '../../components/Button'
import { SelectField } from '../../components/SelectField'
import { TextField } from '../../components/TextField'
import styles from './retention.module.css'
import type { BestFields, Faults } from './rules'

export interface BestRuleFieldsProps {
  fields: BestFields
  place: number
  faults: Faults
  onChange: (fields: BestFields) => void
  onRemove: () => void
}

/** One rule for the best by a metric. */
export function BestRuleFields({ fields, place, faults, onChange, onRemove }: BestRuleFieldsProps): ReactNode {
  const { metric, mode, count } = fields
  return (
    <div className={styles.best} role="group" aria-label={`Best by metric, rule ${place + 1}`}>
      <TextField
        label="Metric"
        value={metric}
        error={faults[`best.${place}.metric`]}
        placeholder="loss"
        onChange={(value) => {
          onChange({ ...fields, metric: value })
        }}
      />
      <SelectField
        label="Best is"
        value={mode}
        options={[
          { value: 'min', label: 'the lowest' },
          { value: 'max', label: 'the highest' },
        ]}
        onChange={(value) => {
          onChange({ ...fields, mode: value })
        }}
      />
      <TextField
        label="How many"
        value={count}
        error={faults[`best.${place}.count`]}
        placeholder="1"
        onChange={(value) => {
          onChange({ ...fields, count: value })
        }}
      />
      <Button
        label={`Remove rule ${place + 1} for the best by ${metric === '' ? 'a metric' : metric}`}
        onClick={onRemove}
      >
        Remove
      </Button>
    </div>
  )
}
