import { humanDuration } from './durations'

const ABSOLUTE = new Intl.DateTimeFormat('en', {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
  timeZoneName: 'short',
})

/** `5 min ago`, `in 3 h`, `just now`: of one unit, the largest that fits. */
export function relativeTime(time: Date, now: Date): string {
  const seconds = (now.getTime() - time.getTime()) / 1000
  if (Number.isNaN(seconds)) return '–'
  if (Math.abs(seconds) < 10) return 'just now'
  const size = largestUnit(Math.abs(seconds))
  const text = humanDuration(Math.max(1, Math.floor(Math.abs(seconds) / size)) * size)
  return seconds > 0 ? `${text} ago` : `in ${text}`
}

/** The time to the second, in the reader's own time zone, which it names. */
export function absoluteTime(time: Date): string {
  return Number.isNaN(time.getTime()) ? 'unknown' : ABSOLUTE.format(time)
}

/** Seconds from one ISO time to another, or to now; null where either is missing or no time. */
export function secondsBetween(start: string | null, end: string | null): number | null {
  if (start === null || end === null) return null
  const seconds = (Date.parse(end) - Date.parse(start)) / 1000
  return Number.isNaN(seconds) ? null : seconds
}

function largestUnit(seconds: number): number {
  if (seconds >= 86_400) return 86_400
  if (seconds >= 3_600) return 3_600
  return seconds >= 60 ? 60 : 1
}

const CLOCK = new Intl.DateTimeFormat('en', { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
const DAY = new Intl.DateTimeFormat('en', { month: 'short', day: 'numeric' })
const TWO_DAYS = 2 * 86_400

/** A label of an axis that spans so many seconds: the clock up to two days, else the day. */
export function shortTime(time: Date, spanSeconds: number): string {
  if (Number.isNaN(time.getTime())) return ''
  return (spanSeconds <= TWO_DAYS ? CLOCK : DAY).format(time)
}
