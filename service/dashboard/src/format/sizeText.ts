const POWERS: Readonly<Record<string, number>> = { '': 0, k: 1, m: 2, g: 3, t: 4, p: 5 }
const SIZE = /^(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?$/i
const LARGEST = 2 ** 62
const UNITS = ['', 'k', 'M', 'G', 'T', 'P'] as const

/** Bytes of a text such as `5GB` (1,000s), `512MiB` (1,024s) or `1000`, as the command line takes them. */
export function readSize(text: string): number | undefined {
  const match = SIZE.exec(text.trim())
  if (match === null) return undefined
  const [, number = '', unit = '', binary = ''] = match
  if (binary !== '' && unit === '') return undefined
  const size = Math.trunc(Number(number) * (binary === '' ? 1000 : 1024) ** (POWERS[unit.toLowerCase()] ?? 0))
  return size <= LARGEST ? size : undefined
}

/** The shortest text with a unit that reads back as exactly so many bytes. */
export function writeSize(bytes: number): string {
  const texts = [String(bytes)]
  UNITS.forEach((unit, power) => {
    if (power === 0 || bytes === 0) return
    if (bytes % 1000 ** power === 0) texts.push(`${bytes / 1000 ** power} ${unit}B`)
    if (bytes % 1024 ** power === 0) texts.push(`${bytes / 1024 ** power} ${unit === 'k' ? 'K' : unit}iB`)
  })
  return texts.reduce((shortest, text) => (digits(text) < digits(shortest) ? text : shortest))
}

function digits(text: string): number {
  return text.replaceAll(/\D/g, '').length
}
