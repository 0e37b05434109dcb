/** Durations as people write them, such as `14d`, and as the API takes them, in seconds. Pure. */

const UNIT_SECONDS = { s: 1, m: 60, h: 3_600, d: 86_400 } as const
type Unit = keyof typeof UNIT_SECONDS
const LARGEST_FIRST: readonly Unit[] = ['d', 'h', 'm', 's']
const DURATION = /^(\d{1,11})\s*([smhd])$/

/** Seconds of a text such as `30d`, `12h`, `45m` or `90s`, as the command line takes them; undefined of any other. */
export function readDuration(text: string): number | undefined {
  const match = DURATION.exec(text.trim().toLowerCase())
  if (match === null) {
    return undefined
  }
  return Number(match[1]) * UNIT_SECONDS[match[2] as Unit]
}

/** The text that reads back as exactly so many seconds, in the largest unit that divides them. */
export function writeDuration(seconds: number): string {
  const unit = LARGEST_FIRST.find((one) => seconds % UNIT_SECONDS[one] === 0) ?? 's'
  return `${seconds / UNIT_SECONDS[unit]}${unit}`
}
