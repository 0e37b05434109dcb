import { Link } from '@tanstack/react-router'
import { useState, type KeyboardEvent, type ReactNode } from 'react'
import type { Message } from '../api/client'
import { classes } from '../components/classes'
import { count } from '../format/numbers'
import figure from './Figure.module.css'
import { Mark } from './Mark'
import { MarkLegend } from './MarkLegend'
import { describeMark } from './marks'
import styles from './Timeline.module.css'
import {
  labelStride,
  layOutTimeline,
  neighbour,
  type TimelineLayout,
  type TimelineLink,
  type TimelineMark,
} from './timelineLayout'
import { useScrolledToEnd } from './useScrolledToEnd'

const COLUMN = 30
const ROW = 36
const AXIS = 22
const LABELS = 84
const MARGIN = 8
/** Room for the last label, which is as wide as its step is long. */
const END = 24
const DIGIT = 7

export interface TimelineProps {
  checkpoints: readonly Message<'CheckpointSummary'>[]
  attempts: readonly Message<'AttemptInfo'>[]
}

/** Checkpoints by step, one lane for each attempt; one stop for the Tab key, arrow keys go through the marks. */
export function Timeline({ checkpoints, attempts }: TimelineProps): ReactNode {
  const layout = layOutTimeline(checkpoints, attempts)
  const [pointed, setPointed] = useState<string | null>(null)
  const [reached, setReached] = useState<string | null>(null)
  const scroll = useScrolledToEnd(checkpoints[0]?.id)

  const active = layout.marks.find(({ checkpoint }) => checkpoint.id === pointed)
  const found = layout.marks.findIndex(({ checkpoint }) => checkpoint.id === reached)
  const stop = found >= 0 ? found : layout.marks.length - 1
  const move = (event: KeyboardEvent<SVGGElement>): void => {
    const next = layout.marks[neighbour(layout.marks, stop, event.key)]
    if (next === undefined || next === layout.marks[stop]) return
    event.preventDefault()
    setReached(next.checkpoint.id)
    event.currentTarget.querySelector<SVGAElement>(`[data-checkpoint="${next.checkpoint.id}"]`)?.focus()
  }

  const height = layout.rows * ROW + AXIS
  const width = layout.steps.length * COLUMN + MARGIN + END
  const current = attempts.find((attempt) => attempt.current)?.number
  return (
    <div className={figure.figure}>
      <div ref={scroll} className={figure.scroll}>
        <Lanes layout={layout} current={current} height={height} />
        <svg width={width} height={height} className={figure.drawing} role="group" aria-label="Timeline of checkpoints">
          {layout.lanes.map(
            (lane, index) =>
              index % 2 === 0 && (
                <rect key={lane.attempt} y={lane.row * ROW} width={width} height={lane.rows * ROW} className={styles.lane} />
              ),
          )}
          {layout.links.map((link) => (
            <Resumed key={link.to.checkpoint.id} link={link} />
          ))}
          <Steps steps={layout.steps} y={layout.rows * ROW} />
          <g onKeyDown={move}>
            {layout.marks.map((mark, index) => (
              <MarkLink
                key={mark.checkpoint.id}
                mark={mark}
                stop={index === stop}
                onPoint={setPointed}
                onReach={setReached}
              />
            ))}
          </g>
        </svg>
      </div>
      <p className={figure.said} data-active={active !== undefined}>
        {active === undefined ? 'Point at a mark to read it, or go through them with the arrow keys.' : describeMark(active.checkpoint)}
      </p>
      <MarkLegend checkpoints={checkpoints} />
    </div>
  )
}

interface MarkLinkProps {
  mark: TimelineMark
  /** Whether the Tab key stops here. */
  stop: boolean
  onPoint: (id: string | null) => void
  onReach: (id: string) => void
}

function MarkLink({ mark, stop, onPoint, onReach }: MarkLinkProps): ReactNode {
  const { id } = mark.checkpoint
  const { x, y } = placeOf(mark)
  return (
    <Link
      to="/checkpoints/$checkpoint"
      params={{ checkpoint: id }}
      tabIndex={stop ? 0 : -1}
      aria-label={describeMark(mark.checkpoint)}
      className={styles.mark ?? ''}
      data-checkpoint={id}
      onFocus={() => {
        onReach(id)
        onPoint(id)
      }}
      onBlur={() => {
        onPoint(null)
      }}
      onMouseEnter={() => {
        onPoint(id)
      }}
      onMouseLeave={() => {
        onPoint(null)
      }}
    >
      <g transform={`translate(${x} ${y})`}>
        <rect x={-COLUMN / 2 + 1} y={-ROW / 2 + 1} width={COLUMN - 2} height={ROW - 2} rx="4" className={styles.target} />
        <Mark checkpoint={mark.checkpoint} />
      </g>
    </Link>
  )
}

function Lanes({ layout, current, height }: { layout: TimelineLayout; current: number | undefined; height: number }): ReactNode {
  return (
    <svg width={LABELS} height={height} className={classes(figure.drawing, figure.fixed)} aria-hidden="true">
      {layout.lanes.map((lane) => (
        <text
          key={lane.attempt}
          y={lane.row * ROW + ROW / 2 + 4}
          className={classes(figure.label, lane.attempt === current && figure.strong)}
        >
          Attempt {lane.attempt}
        </text>
      ))}
      <text y={height - 6} className={figure.label}>
        Step
      </text>
    </svg>
  )
}

/** An arrow from what an attempt resumed from to the first it saved. */
function Resumed({ link }: { link: TimelineLink }): ReactNode {
  const from = placeOf(link.from)
  const to = placeOf(link.to)
  const down = to.y > from.y ? 1 : -1
  const start = from.y + 9 * down
  const end = to.y - 14 * down
  return (
    <g>
      <path d={`M${from.x} ${start}C${from.x} ${end} ${to.x} ${start} ${to.x} ${end}`} className={styles.link} />
      <path d={`M${to.x - 3.5} ${end - down}h7l-3.500 ${5 * down}Z`} className={styles.arrow} />
    </g>
  )
}

function Steps({ steps, y }: { steps: readonly number[]; y: number }): ReactNode {
  const longest = count(steps.at(-1) ?? 0).length
  const stride = labelStride(steps.length, COLUMN, longest * DIGIT + DIGIT)
  const last = steps.length - 1
  return (
    <g aria-hidden="true">
      {steps.map((step, column) =>
        (last - column) % stride === 0 ? (
          <text key={step} x={columnX(column)} y={y + 15} className={classes(figure.label, figure.middle)}>
            {count(step)}
          </text>
        ) : null,
      )}
    </g>
  )
}

function placeOf({ column, row }: TimelineMark): { x: number; y: number } {
  return { x: columnX(column), y: row * ROW + ROW / 2 }
}

function columnX(column: number): number {
  return MARGIN + column * COLUMN + COLUMN / 2
}
