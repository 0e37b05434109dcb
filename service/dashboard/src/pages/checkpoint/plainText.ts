/** A value of free-form JSON as one line of text. */
export function plainText(value: unknown): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'string') return value
  return JSON.stringify(value)
}
