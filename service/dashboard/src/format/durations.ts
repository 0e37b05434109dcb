const STEPS: readonly (readonly [unit: string, seconds: number])[] = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
]

/** A duration for people, of two units at most: `2 h 5 min`, `3.2 s`, `12 ms`. */
export function humanDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '–'
  if (seconds < 0) return `−${humanDuration(-seconds)}`
  if (seconds === 0) return '0 s'
  if (seconds < 0.9995) return seconds < 0.001 ? '< 1 ms' : `${Math.round(seconds * 1000)} ms`
  if (seconds < 59.95) return `${Number(seconds.toFixed(1))} s`
  return twoUnits(Math.round(seconds))
}

function twoUnits(seconds: number): string {
  const first = STEPS.findIndex(([, size]) => seconds >= size)
  const [unit, size] = STEPS[first] ?? (['s', 1] as const)
  const [nextUnit, nextSize] = STEPS[first + 1] ?? (['', size] as const)
  const rounded = Math.round(seconds / nextSize) * nextSize
  const larger = STEPS[first - 1]?.[1] ?? Number.POSITIVE_INFINITY
  if (rounded >= larger) return twoUnits(rounded)
  const rest = Math.round((rounded % size) / nextSize)
  const whole = `${Math.floor(rounded / size)} ${unit}`
  return rest === 0 ? whole : `${whole} ${rest} ${nextUnit}`
}
