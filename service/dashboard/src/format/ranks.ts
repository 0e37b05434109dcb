/** Ranks as people write them: `rank 3`, `ranks 0–3, 7`; after `most` stretches `and 12 more`. */
export function rankList(ranks: readonly number[], most = 8): string {
  const stretches = stretchesOf(ranks)
  const shown = stretches.slice(0, most)
  const rest = stretches.slice(most).reduce((sum, [first, last]) => sum + last - first + 1, 0)
  const text = shown.map(([first, last]) => rankRange(first, last)).join(', ')
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${text}${rest > 0 ? ` and ${rest} more` : ''}`
}

/** `3`, `0–3`. */
export function rankRange(first: number, last: number): string {
  return first === last ? String(first) : `${first}–${last}`
}

function stretchesOf(ranks: readonly number[]): [first: number, last: number][] {
  const stretches: [number, number][] = []
  for (const rank of [...ranks].sort((a, b) => a - b)) {
    const last = stretches.at(-1)
    if (last !== undefined && rank <= last[1] + 1) last[1] = rank
    else stretches.push([rank, rank])
  }
  return stretches
}
