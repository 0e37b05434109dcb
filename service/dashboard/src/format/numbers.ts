/** A count with separators: `12,345`. */
export function count(value: number): string {
  return value.toLocaleString('en')
}

/** `1 run`, `12 runs`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`
}

/** How many times: `3.42×`; a dash where nothing is divided by nothing. */
export function ratio(whole: number, part: number): string {
  if (!(part > 0) || !Number.isFinite(whole)) return '–'
  const value = whole / part
  return `${value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 })}×`
}

/** A share of one as per cent: `12.5%`. What is not all never reads as 100%, and what is not none never as 0%. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return '–'
  if (share > 0 && share < 0.001) return '< 0.1%'
  if (share < 1 && share > 0.999) return '> 99.9%'
  return `${(share * 100).toLocaleString('en', { maximumFractionDigits: 1 })}%`
}

/** A metric as the API writes it: a number, or "NaN", "Infinity", "-Infinity". */
export function metric(value: number | string): string {
  if (typeof value === 'string') return value
  if (!Number.isFinite(value)) return String(value)
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(3)
  return value.toLocaleString('en', { maximumSignificantDigits: 6 })
}

/** A metric as a number to draw; NaN where there is none. */
export function metricNumber(value: number | string | undefined): number {
  return value === undefined ? Number.NaN : Number(value)
}
