import { useId, type HTMLInputAutoCompleteAttribute, type ReactNode, type Ref } from 'react'
import styles from './Field.module.css'

export interface TextFieldProps {
  label: string
  value: string
  onChange: (value: string) => void
  onBlur?: () => void
  type?: 'text' | 'password' | 'number' | 'datetime-local' | 'date'
  hint?: ReactNode
  /** What is wrong with the value. */
  error?: string | undefined
  required?: boolean
  disabled?: boolean
  placeholder?: string
  autoComplete?: HTMLInputAutoCompleteAttribute
  /** The label is read out only. */
  hideLabel?: boolean
  min?: number
  step?: number | 'any'
  /** Values to choose from, besides what is typed. */
  suggestions?: readonly string[]
  ref?: Ref<HTMLInputElement>
}

export function TextField(props: TextFieldProps): ReactNode {
  const { label, value, onChange, hint, error, suggestions, ...more } = props
  const { type = 'text', hideLabel = false, autoComplete = 'off', ...rest } = more
  const id = useId()
  const described = [hint !== undefined && `${id}-hint`, error !== undefined && `${id}-error`].filter(Boolean).join(' ')
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={hideLabel ? 'visually-hidden' : styles.label}>
        {label}
      </label>
      <input
        {...rest}
        id={id}
        type={type}
        value={value}
        autoComplete={autoComplete}
        spellCheck={false}
        list={suggestions === undefined ? undefined : `${id}-list`}
        className={styles.input}
        aria-invalid={error !== undefined || undefined}
        aria-describedby={described || undefined}
        onChange={(event) => {
          onChange(event.target.value)
        }}
      />
      {suggestions !== undefined && (
        <datalist id={`${id}-list`}>
          {suggestions.map((suggestion) => (
            <option key={suggestion} value={suggestion} />
          ))}
        </datalist>
      )}
      {hint !== undefined && (
        <p id={`${id}-hint`} className={styles.hint}>
          {hint}
        </p>
      )}
      {error !== undefined && (
        <p id={`${id}-error`} className={styles.error}>
          {error}
        </p>
      )}
    </div>
  )
}
