import type { Message } from '../api/client'

type SaveTimes = Message<'SaveTimes'>

/** From which ratio to the save's median on a rank is in the level of this index + 1. */
export const LEVEL_RATIOS = [1.25, 1.5, 2, 4] as const
export const LEVELS = LEVEL_RATIOS.length + 1
/** What is slower by less than this is noise, whatever the ratio: tiny saves take milliseconds. */
export const NOISE_SECONDS = 0.05

/** Ranks that share a row of the map: one, unless there are more ranks than rows. */
export interface Band {
  first: number
  last: number
}

/** One cell: what the slowest rank of a band took in one save. */
export interface Cell {
  /** `none`: the save had no such rank. `missing`: one of the band never came. `waiting`: one is still to come. */
  kind: 'none' | 'missing' | 'waiting' | 'timed'
  /** The ranks of the band that are missing or waited for. */
  absent: number[]
  slowest: number | null
  seconds: number | null
  /** `seconds` over the save's median; null without one. */
  ratio: number | null
  /** 0 for what is as usual, to `LEVELS - 1` for what is slowest. */
  level: number
}

export interface HeatMap {
  bands: Band[]
  /** Oldest first. */
  saves: SaveTimes[]
  /** The save's median over its ranks that came; null where none did. */
  medians: (number | null)[]
  /** `cells[band][save]`. */
  cells: Cell[][]
}

/** The ranks from `first` to `last` in at most `most` rows of equally many ranks; the last row may have fewer. */
export function bandsOf(first: number, last: number, most: number): Band[] {
  const size = Math.max(1, Math.ceil((last - first + 1) / most))
  const bands: Band[] = []
  for (let start = first; start <= last; start += size) {
    bands.push({ first: start, last: Math.min(start + size - 1, last) })
  }
  return bands
}

/** The largest rank of any of the saves; -1 without saves. */
export function lastRank(saves: readonly SaveTimes[]): number {
  return saves.reduce((last, save) => Math.max(last, save.world_size - 1), -1)
}

/** `saves` come newest first, as the API lists them. */
export function layOutHeatMap(saves: readonly SaveTimes[], bands: Band[]): HeatMap {
  const columns = [...saves].reverse()
  const medians = columns.map((save) => median(save.seconds))
  const cells = bands.map((band) => columns.map((save, column) => cellOf(save, band, medians[column] ?? null)))
  return { bands, saves: columns, medians, cells }
}

/** The value in the middle; of an even number the smaller of the two, so that one of two ranks can be the slow one. */
export function median(values: readonly (number | null)[]): number | null {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b)
  return sorted[(sorted.length - 1) >> 1] ?? null
}

export function levelOf(seconds: number, usual: number): number {
  if (seconds - usual < NOISE_SECONDS) return 0
  const ratio = ratioOf(seconds, usual)
  return LEVEL_RATIOS.filter((least) => ratio >= least).length
}

function cellOf(save: SaveTimes, band: Band, usual: number | null): Cell {
  const absent: number[] = []
  let slowest: number | null = null
  let seconds: number | null = null
  for (let rank = band.first; rank <= Math.min(band.last, save.world_size - 1); rank += 1) {
    const taken = save.seconds[rank] ?? null
    if (taken === null) absent.push(rank)
    else if (seconds === null || taken > seconds) [slowest, seconds] = [rank, taken]
  }
  const ratio = seconds === null || usual === null ? null : ratioOf(seconds, usual)
  const level = seconds === null || usual === null ? 0 : levelOf(seconds, usual)
  return { kind: kindOf(save, band, absent), absent, slowest, seconds, ratio, level }
}

function kindOf(save: SaveTimes, band: Band, absent: readonly number[]): Cell['kind'] {
  if (band.first >= save.world_size) return 'none'
  if (absent.length === 0) return 'timed'
  return isRunning(save) ? 'waiting' : 'missing'
}

function isRunning(save: SaveTimes): boolean {
  return save.state === 'open' || save.state === 'validating'
}

function ratioOf(seconds: number, usual: number): number {
  return usual > 0 ? seconds / usual : seconds > 0 ? Number.POSITIVE_INFINITY : 1
}

/** The ratio as it is listed: what is noise in the map is no slowness here either. */
function toldRatio(seconds: number, usual: number): number {
  const ratio = ratioOf(seconds, usual)
  return seconds - usual < NOISE_SECONDS ? Math.min(1, ratio) : ratio
}

/** What one rank did over the saves shown. */
export interface RankRecord {
  rank: number
  /** Saves it took part in or should have, of those that have ended. */
  saves: number
  missing: number
  /** How often it was the slowest of a save with more than one rank. */
  slowest: number
  /** The median of its ratios to the saves' medians. */
  usualRatio: number | null
  worstRatio: number | null
  worstSeconds: number | null
  worstStep: number | null
}

/** The ranks that were missing, or slow by a level of the map, at least once: those missing most often first, then those usually slowest. */
export function slowestRanks(saves: readonly SaveTimes[]): RankRecord[] {
  return recordsOf(saves)
    .filter(({ missing, worstRatio }) => missing > 0 || (worstRatio ?? 0) >= LEVEL_RATIOS[0])
    .sort((a, b) => b.missing - a.missing || (b.usualRatio ?? 0) - (a.usualRatio ?? 0) || a.rank - b.rank)
}

function recordsOf(saves: readonly SaveTimes[]): RankRecord[] {
  const records: RankRecord[] = []
  const ratios: number[][] = []
  for (const save of saves) {
    const usual = median(save.seconds)
    const slowest = save.world_size > 1 ? slowestOf(save.seconds) : null
    for (let rank = 0; rank < save.world_size; rank += 1) {
      const record = (records[rank] ??= newRecord(rank))
      const seconds = save.seconds[rank] ?? null
      if (seconds === null) {
        if (isRunning(save)) continue
        record.saves += 1
        record.missing += 1
        continue
      }
      record.saves += 1
      if (rank === slowest) record.slowest += 1
      const ratio = toldRatio(seconds, usual ?? seconds)
      ;(ratios[rank] ??= []).push(ratio)
      if (record.worstRatio === null || ratio > record.worstRatio) {
        record.worstRatio = ratio
        record.worstSeconds = seconds
        record.worstStep = save.step
      }
    }
  }
  return records.map((record) => ({ ...record, usualRatio: median(ratios[record.rank] ?? []) }))
}

function newRecord(rank: number): RankRecord {
  return {
    rank,
    saves: 0,
    missing: 0,
    slowest: 0,
    usualRatio: null,
    worstRatio: null,
    worstSeconds: null,
    worstStep: null,
  }
}

function slowestOf(seconds: readonly (number | null)[]): number | null {
  let slowest: number | null = null
  let longest = Number.NEGATIVE_INFINITY
  for (const [rank, taken] of seconds.entries()) {
    if (taken !== null && taken > longest) [slowest, longest] = [rank, taken]
  }
  return slowest
}
