import type { ReactNode } from 'react'
import { absoluteTime, relativeTime } from '../format/times'
import { useNow } from './useNow'

/** A time as it is from now; absolute in its title. `absolute` shows both. */
export function When({ time, absolute = false }: { time: string | null; absolute?: boolean }): ReactNode {
  const now = useNow()
  if (time === null) return '–'
  const date = new Date(time)
  const exact = absoluteTime(date)
  const relative = relativeTime(date, now)
  return (
    <time dateTime={time} title={exact} className={absolute ? undefined : 'figure'}>
      {absolute ? `${exact} (${relative})` : relative}
    </time>
  )
}
