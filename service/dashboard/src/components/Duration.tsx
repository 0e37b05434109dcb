import type { ReactNode } from 'react'
import { humanDuration } from '../format/durations'

export function Duration({ seconds }: { seconds: number | null }): ReactNode {
  if (seconds === null) return '–'
  return (
    <span className="figure" title={`${seconds.toLocaleString('en', { maximumFractionDigits: 3 })} seconds`}>
      {humanDuration(seconds)}
    </span>
  )
}
