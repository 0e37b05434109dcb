import { LEVELS, type Cell, type HeatMap } from './rankTimes'

/** How large a cell is drawn, in CSS pixels. */
export interface CellSize {
  width: number
  height: number
}

export const MOST_BANDS = 64
const FEW_SAVES = 20

/** Cells as large as so many rows and columns allow; more than fit side by side are scrolled. */
export function cellSize(bands: number, saves: number): CellSize {
  return { width: saves <= FEW_SAVES ? 30 : 18, height: bands <= 16 ? 20 : bands <= 32 ? 14 : 8 }
}

/** How much of a cell's width a level fills: slowness is told by width as much as by colour. */
export function shareOf(level: number): number {
  return 0.25 + (0.75 * level) / (LEVELS - 1)
}

/** One path for each look a cell can have: thousands of cells are drawn as a handful of elements. */
export interface CellPaths {
  /** By level. */
  timed: string[]
  missing: string
  waiting: string
}

export function cellPaths({ cells }: HeatMap, size: CellSize): CellPaths {
  const timed = Array.from({ length: LEVELS }, (): string[] => [])
  const missing: string[] = []
  const waiting: string[] = []
  cells.forEach((row, band) => {
    row.forEach((cell, save) => {
      const x = save * size.width
      const y = band * size.height
      if (cell.kind === 'missing') missing.push(crossed(x, y, size))
      else if (cell.kind === 'waiting') waiting.push(boxed(x, y, size))
      if (cell.seconds !== null && cell.kind !== 'missing') timed[cell.level]?.push(bar(x, y, size, cell.level))
    })
  })
  return { timed: timed.map((parts) => parts.join('')), missing: missing.join(''), waiting: waiting.join('') }
}

/** The cell at a point of the drawing; null outside it. */
export function cellAt(x: number, y: number, size: CellSize, map: HeatMap): { band: number; save: number } | null {
  const band = Math.floor(y / size.height)
  const save = Math.floor(x / size.width)
  return map.cells[band]?.[save] === undefined ? null : { band, save }
}

/** Where an arrow key leads from a cell; Home and End are the first and the last save, Page Up and Down eight rows. */
export function cellBeside(at: { band: number; save: number }, key: string, map: HeatMap): { band: number; save: number } {
  const moves: Record<string, [band: number, save: number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    PageUp: [-8, 0],
    PageDown: [8, 0],
    Home: [0, -Number.MAX_SAFE_INTEGER],
    End: [0, Number.MAX_SAFE_INTEGER],
  }
  const [bands, saves] = moves[key] ?? [0, 0]
  return {
    band: clamp(at.band + bands, map.bands.length - 1),
    save: clamp(at.save + saves, map.saves.length - 1),
  }
}

/** The cell to begin with: the newest missing one, else the slowest, else the first rank of the newest save. */
export function worstCell({ cells, saves }: HeatMap): { band: number; save: number } {
  let worst = { band: 0, save: Math.max(0, saves.length - 1) }
  let most = -1
  cells.forEach((row, band) => {
    row.forEach((cell, save) => {
      const weight = weightOf(cell, save)
      if (weight > most) [worst, most] = [{ band, save }, weight]
    })
  })
  return worst
}

function weightOf(cell: Cell, save: number): number {
  if (cell.kind === 'missing') return 1e6 + save
  return cell.level === 0 ? -1 : cell.level * 1000 + save
}

function bar(x: number, y: number, { width, height }: CellSize, level: number): string {
  const wide = (width - 2) * shareOf(level)
  return `M${x + (width - wide) / 2} ${y + 0.5}h${wide}v${height - 1}h${-wide}z`
}

function boxed(x: number, y: number, { width, height }: CellSize): string {
  return `M${x + 1.5} ${y + 1}h${width - 3}v${height - 2}h${3 - width}z`
}

function crossed(x: number, y: number, size: CellSize): string {
  const { width, height } = size
  const [left, right, top, bottom] = [x + 1.5, x + width - 1.5, y + 1, y + height - 1]
  return `${boxed(x, y, size)}M${left} ${top}L${right} ${bottom}M${left} ${bottom}L${right} ${top}`
}

function clamp(value: number, last: number): number {
  return Math.max(0, Math.min(last, value))
}
