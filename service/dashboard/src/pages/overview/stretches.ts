import type { Message } from '../../api/client'

export type Stretch = Message<'SavesInTime'>

const HOUR = 3600
/** Hours that a bar may stand for. */
const SIZES = [1, 2, 3, 4, 6, 12, 24, 48, 72, 168]

/** How many seconds a bar stands for when there is room for so many: whole hours, as few as fit. */
export function barSeconds(windowHours: number, room: number): number {
  // One more than the window holds, since it begins within one.
  const hours = SIZES.find((size) => windowHours / size + 1 <= room) ?? 168
  return hours * HOUR
}

/** The same saves in longer stretches, which begin at whole multiples of them; the first may be cut by the window. */
export function merged(saves: readonly Stretch[], seconds: number): Stretch[] {
  const groups = new Map<number, Stretch[]>()
  for (const stretch of saves) {
    const group = Math.floor(Date.parse(stretch.start) / 1000 / seconds)
    groups.set(group, [...(groups.get(group) ?? []), stretch])
  }
  return Array.from(groups.values(), sum)
}

/** What all of them have together; begins when the first does. */
export function sum(saves: readonly Stretch[]): Stretch {
  const none: Stretch = { start: saves[0]?.start ?? '', committed: 0, aborted: 0, new_bytes: 0, raw_bytes: 0 }
  return saves.reduce(
    (total, { committed, aborted, new_bytes, raw_bytes }) => ({
      start: total.start,
      committed: total.committed + committed,
      aborted: total.aborted + aborted,
      new_bytes: total.new_bytes + new_bytes,
      raw_bytes: total.raw_bytes + raw_bytes,
    }),
    none,
  )
}

export interface Growth {
  /** Seconds since 1970: the end of each stretch, but for the first, which is the start of all. */
  times: number[]
  stored: number[]
  logical: number[]
}

/** What the commits brought by then, added up from the start of the window. */
export function growth(saves: readonly Stretch[], stretchSeconds: number): Growth {
  const first = saves[0]
  if (first === undefined) return { times: [], stored: [], logical: [] }
  const grown: Growth = { times: [Date.parse(first.start) / 1000], stored: [0], logical: [0] }
  for (const { start, new_bytes: newBytes, raw_bytes: rawBytes } of saves) {
    grown.times.push(Date.parse(start) / 1000 + stretchSeconds)
    grown.stored.push((grown.stored.at(-1) ?? 0) + newBytes)
    grown.logical.push((grown.logical.at(-1) ?? 0) + rawBytes)
  }
  return grown
}

/** Round counts from 0 to at least `largest`, for the axis of a chart. */
export function countTicks(largest: number, most = 4): number[] {
  const rough = Math.max(1, largest / most)
  const unit = 10 ** Math.floor(Math.log10(rough))
  const step = Math.max(1, unit * ([1, 2, 5, 10].find((factor) => factor * unit >= rough) ?? 10))
  return Array.from({ length: Math.max(1, Math.ceil(largest / step)) + 1 }, (_, index) => index * step)
}
