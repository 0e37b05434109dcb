import { useId, type ReactNode } from 'react'
import { percent } from '../format/numbers'
import styles from './Meter.module.css'

export interface MeterProps {
  label: string
  value: number
  max: number
  /** What is written beside it; the share where it is missing. */
  text?: string
  /** From which share on it looks alarming: a quota, not a coverage. */
  warnAt?: number
}

/** How much of something: a bar with its figure in words. */
export function Meter({ label, value, max, text, warnAt = Number.POSITIVE_INFINITY }: MeterProps): ReactNode {
  const id = useId()
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0
  return (
    <div className={styles.meter}>
      <div className={styles.words}>
        <span id={id}>{label}</span>
        <span className={styles.text}>{text ?? percent(share)}</span>
      </div>
      <svg
        role="meter"
        aria-labelledby={id}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 1000) / 10}
        aria-valuetext={text === undefined || text === '' ? percent(share) : text}
        className={styles.bar}
        data-full={share >= warnAt || undefined}
      >
        <rect width="100%" height="100%" rx="4" className={styles.whole} />
        <rect width={`${share * 100}%`} height="100%" rx="4" className={styles.part} />
      </svg>
    </div>
  )
}
