import { useId, type ReactNode } from 'react'
import styles from './Field.module.css'

export interface SelectFieldProps<Value extends string> {
  label: string
  value: Value
  options: readonly { value: Value; label: string }[]
  onChange: (value: Value) => void
  hint?: ReactNode
  disabled?: boolean
  /** The label is read out only. */
  hideLabel?: boolean
}

export function SelectField<Value extends string>(props: SelectFieldProps<Value>): ReactNode {
  const { label, value, options, onChange, hint, disabled = false, hideLabel = false } = props
  const id = useId()
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={hideLabel ? 'visually-hidden' : styles.label}>
        {label}
      </label>
      <select
        id={id}
        value={value}
        disabled={disabled}
        className={styles.input}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => {
          const chosen = options.find((option) => option.value === event.target.value)
          if (chosen !== undefined) onChange(chosen.value)
        }}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
      {hint !== undefined && (
        <p id={`${id}-hint`} className={styles.hint}>
          {hint}
        </p>
      )}
    </div>
  )
}
