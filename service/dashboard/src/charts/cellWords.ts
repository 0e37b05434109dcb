import { humanDuration } from '../format/durations'
import { count, ratio } from '../format/numbers'
import { rankList, rankRange } from '../format/ranks'
import type { Band, Cell, HeatMap } from './rankTimes'

/** What a cell of the map says: `Step 200, committed, rank 3: 9 s, 1.8× the median of 5 s`. */
export function describeCell(map: HeatMap, at: { band: number; save: number }): string {
  const save = map.saves[at.save]
  const band = map.bands[at.band]
  const cell = map.cells[at.band]?.[at.save]
  if (save === undefined || band === undefined || cell === undefined) return ''
  const where = `Step ${count(save.step)}, ${save.state}, ${bandName(band)}`
  return `${where}: ${outcome(cell, band, map.medians[at.save] ?? null)}`
}

export function bandName({ first, last }: Band): string {
  return `${first === last ? 'rank' : 'ranks'} ${rankRange(first, last)}`
}

function outcome(cell: Cell, band: Band, median: number | null): string {
  if (cell.kind === 'none') return 'the save had no such rank'
  const parts: string[] = []
  if (cell.kind === 'missing') parts.push(band.first === band.last ? 'never arrived' : `${rankList(cell.absent)} never arrived`)
  if (cell.kind === 'waiting') parts.push(band.first === band.last ? 'not there yet' : `${rankList(cell.absent)} not there yet`)
  if (cell.seconds !== null) parts.push(timing(cell, band, median))
  return parts.join('; ')
}

function timing({ slowest, seconds }: Cell, band: Band, median: number | null): string {
  const taken = seconds ?? 0
  const who = band.first === band.last ? '' : `the slowest, rank ${slowest ?? band.first}, took `
  const against = median === null ? '' : `, ${ratio(taken, median)} the median of ${humanDuration(median)}`
  return `${who}${humanDuration(taken)}${against}`
}
