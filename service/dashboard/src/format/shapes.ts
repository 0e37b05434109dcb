/** A tensor's shape as Python writes it: `(3, 4)`, `(7,)`, `()`. */
export function shapeText(sizes: readonly number[]): string {
  return sizes.length === 1 ? `(${sizes[0] ?? 0},)` : `(${sizes.join(', ')})`
}

/** A region as slices: `[0:8, 16:32]`. */
export function regionText(offsets: readonly number[], sizes: readonly number[]): string {
  return `[${sizes.map((size, axis) => `${offsets[axis] ?? 0}:${(offsets[axis] ?? 0) + size}`).join(', ')}]`
}
