import { shortTime } from '../format/times'

export interface TimeLabel {
  /** Seconds since 1970. */
  at: number
  text: string
}

const DAY = 86_400
const HOUR = 3_600
/** Days or hours from one label to the next. Hours divide the day, so that each day has the same ones. */
const DAYS = [1, 2, 7, 14, 28]
const HOURS = [1, 2, 3, 6, 12]

/**
 * Where the days of the reader's own clock begin within a stretch of time, or above every so many full hours of it where
 * the stretch is two days at most: as many as there is room for, at equal distances.
 */
export function timeLabels(first: number, last: number, most: number): TimeLabel[] {
  const span = last - first
  const byDays = span > 2 * DAY
  const [unit, sizes] = byDays ? [DAY, DAYS] : [HOUR, HOURS]
  const size = sizes.find((each) => span / (each * unit) <= most) ?? Math.max(...sizes)
  const labels: TimeLabel[] = []
  // Dates count on by the clock, also where a day has 23 or 25 hours.
  const time = new Date(first * 1000)
  const ofDay = time.getHours() + time.getMinutes() / 60 + time.getSeconds() / HOUR
  const hours = byDays ? 24 : size
  time.setHours(Math.ceil(ofDay / hours) * hours, 0, 0, 0)
  while (time.getTime() / 1000 < last) {
    labels.push({ at: time.getTime() / 1000, text: shortTime(time, span) })
    if (byDays) time.setDate(time.getDate() + size)
    else time.setHours(time.getHours() + size)
  }
  return labels
}
