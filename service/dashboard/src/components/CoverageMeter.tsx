import type { ReactNode } from 'react'
import type { Message } from '../api/client'
import { Meter } from './Meter'

export interface CoverageMeterProps {
  label: string
  info: Message<'IntegrityInfo'>
}

/** How much of what is stored was compared with its digest lately: of nothing, nothing. */
export function CoverageMeter({ label, info }: CoverageMeterProps): ReactNode {
  if (info.stored_bytes === 0) return <Meter label={label} value={0} max={1} text="nothing is stored yet" />
  return <Meter label={label} value={info.coverage} max={1} />
}
