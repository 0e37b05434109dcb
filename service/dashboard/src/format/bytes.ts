const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'] as const

/** A size for people, in powers of 1,024: `1.5 GiB`. Three significant digits at most. */
export function humanBytes(value: number): string {
  if (!Number.isFinite(value)) return '–'
  const sign = value < 0 ? '−' : ''
  let size = Math.abs(value)
  let unit = 0
  while (unit < UNITS.length - 1 && rounded(size, unit) >= 1024) {
    size /= 1024
    unit += 1
  }
  return `${sign}${rounded(size, unit).toLocaleString('en')} ${UNITS[unit] ?? ''}`
}

/** The same size to the byte: `1,610,612,736 bytes`. */
export function exactBytes(value: number): string {
  if (!Number.isFinite(value)) return 'unknown'
  const exact = Number.isSafeInteger(value) ? '' : 'about '
  return `${exact}${value.toLocaleString('en')} ${Math.abs(value) === 1 ? 'byte' : 'bytes'}`
}

/** Bytes a second: `210 MiB/s`; a dash where no time has passed. */
export function humanRate(bytes: number, seconds: number): string {
  if (!(seconds > 0) || !Number.isFinite(bytes)) return '–'
  return `${humanBytes(bytes / seconds)}/s`
}

function rounded(size: number, unit: number): number {
  if (unit === 0) return Math.round(size)
  const digits = size < 10 ? 2 : size < 100 ? 1 : 0
  return Number(size.toFixed(digits))
}
