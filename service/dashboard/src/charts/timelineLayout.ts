import type { Message } from '../api/client'

type Checkpoint = Message<'CheckpointSummary'>
type Attempt = Pick<Message<'AttemptInfo'>, 'number' | 'decision'>

/** A checkpoint's place: `column` by step, `row` within all lanes together. */
export interface TimelineMark {
  checkpoint: Checkpoint
  column: number
  row: number
}

/** One attempt: its rows are `row` to `row + rows - 1`. */
export interface TimelineLane {
  attempt: number
  row: number
  rows: number
}

/** From the checkpoint an attempt resumed from to the attempt's first mark. */
export interface TimelineLink {
  from: TimelineMark
  to: TimelineMark
}

export interface TimelineLayout {
  /** The steps, ascending: one column each, however far apart they are, so that marks never overlap. */
  steps: number[]
  lanes: TimelineLane[]
  /** By lane, then by column, then by save: the order in which arrow keys go through them. */
  marks: TimelineMark[]
  links: TimelineLink[]
  rows: number
}

/** Lanes by attempt, columns by step; saves of one attempt at one step are stacked in rows of their own. */
export function layOutTimeline(checkpoints: readonly Checkpoint[], attempts: readonly Attempt[]): TimelineLayout {
  const steps = [...new Set(checkpoints.map(({ step }) => step))].sort((a, b) => a - b)
  const columns = new Map(steps.map((step, column) => [step, column]))
  const lanes: TimelineLane[] = []
  const marks: TimelineMark[] = []
  let rows = 0
  for (const [attempt, members] of byAttempt(checkpoints)) {
    const stacked = new Map<number, number>()
    const lane = { attempt, row: rows, rows: 1 }
    for (const checkpoint of members) {
      const column = columns.get(checkpoint.step) ?? 0
      const above = stacked.get(column) ?? 0
      stacked.set(column, above + 1)
      lane.rows = Math.max(lane.rows, above + 1)
      marks.push({ checkpoint, column, row: lane.row + above })
    }
    lanes.push(lane)
    rows += lane.rows
  }
  return { steps, lanes, marks, links: linksOf(marks, attempts), rows }
}

/** Every how many columns a step is written, so that labels of `labelWidth` do not run into each other. */
export function labelStride(columns: number, columnWidth: number, labelWidth: number): number {
  if (columns === 0) return 1
  return Math.max(1, Math.ceil(labelWidth / columnWidth))
}

/** The mark an arrow key leads to; the same one at an edge. Up and down go to the nearest column of the next row. */
export function neighbour(marks: readonly TimelineMark[], index: number, key: string): number {
  const here = marks[index]
  if (here === undefined) return 0
  if (key === 'Home') return 0
  if (key === 'End') return marks.length - 1
  if (key === 'ArrowRight') return Math.min(index + 1, marks.length - 1)
  if (key === 'ArrowLeft') return Math.max(index - 1, 0)
  if (key !== 'ArrowUp' && key !== 'ArrowDown') return index
  const row = nextRow(marks, here.row, key === 'ArrowUp')
  if (row === null) return index
  return nearest(marks, row, here.column)
}

function byAttempt(checkpoints: readonly Checkpoint[]): [number, Checkpoint[]][] {
  const groups = new Map<number, Checkpoint[]>()
  for (const checkpoint of checkpoints) {
    const group = groups.get(checkpoint.attempt_number)
    if (group === undefined) groups.set(checkpoint.attempt_number, [checkpoint])
    else group.push(checkpoint)
  }
  const sorted = [...groups].sort(([a], [b]) => a - b)
  for (const [, members] of sorted) members.sort((a, b) => a.step - b.step || a.save - b.save)
  return sorted
}

function linksOf(marks: readonly TimelineMark[], attempts: readonly Attempt[]): TimelineLink[] {
  const byId = new Map(marks.map((mark) => [mark.checkpoint.id, mark]))
  const links: TimelineLink[] = []
  for (const { number, decision } of attempts) {
    const from = decision === null ? undefined : byId.get(decision)
    const to = marks.find(({ checkpoint }) => checkpoint.attempt_number === number)
    if (from !== undefined && to !== undefined) links.push({ from, to })
  }
  return links
}

function nextRow(marks: readonly TimelineMark[], row: number, up: boolean): number | null {
  const others = marks.map((mark) => mark.row).filter((other) => (up ? other < row : other > row))
  if (others.length === 0) return null
  return up ? Math.max(...others) : Math.min(...others)
}

function nearest(marks: readonly TimelineMark[], row: number, column: number): number {
  let best = -1
  for (const [index, mark] of marks.entries()) {
    if (mark.row !== row) continue
    const closer = Math.abs(mark.column - column) < Math.abs((marks[best]?.column ?? Number.POSITIVE_INFINITY) - column)
    if (closer) best = index
  }
  return best
}
