import type { ReactNode } from 'react'
import { exactBytes, humanBytes } from '../format/bytes'

/** A size; exact to the byte in its title. */
export function Bytes({ value }: { value: number | null }): ReactNode {
  if (value === null) return '–'
  return (
    <data value={value} title={exactBytes(value)} className="figure">
      {humanBytes(value)}
    </data>
  )
}
