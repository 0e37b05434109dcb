import { useState, type ReactNode } from 'react'
import { Bytes } from '../components/Bytes'
import { classes } from '../components/classes'
import { DataTable } from '../components/DataTable'
import { Duration } from '../components/Duration'
import { humanBytes, humanRate } from '../format/bytes'
import { humanDuration } from '../format/durations'
import { count, counted } from '../format/numbers'
import figure from './Figure.module.css'
import styles from './SaveBars.module.css'
import type { SavePoint } from './savePoints'
import { TableAlternative } from './TableAlternative'
import { byteAxis, secondAxis, type Axis } from './ticks'
import { labelStride } from './timelineLayout'
import { useScrolledToEnd } from './useScrolledToEnd'
import { useWidth } from './useWidth'

const LABELS = 72
const PLOT = 96
const HEAD = 38
const AXIS = 22
const LEAST_SLOT = 8
const MOST_BAR = 22
const DIGIT = 7

interface Row {
  title: string
  axis: Axis
  tick: (value: number) => string
  value: (point: SavePoint) => number
  /** Drawn behind it, in outline: what `value` is a part of. */
  whole?: (point: SavePoint) => number
}

/** Size, duration and throughput of committed saves, one bar each, in the order of their commit. */
export function SaveBars({ points }: { points: readonly SavePoint[] }): ReactNode {
  const [ref, width] = useWidth()
  const scroll = useScrolledToEnd(points.at(-1)?.id, width)
  const [pointed, setPointed] = useState<number | null>(null)
  const rows = rowsOf(points)
  const slot = Math.max(LEAST_SLOT, (width - LABELS - DIGIT) / Math.max(1, points.length))
  const plot = slot * points.length
  const height = rows.length * (HEAD + PLOT) + AXIS
  const active = pointed === null ? undefined : points[pointed]
  return (
    <div ref={ref} className={figure.figure}>
      <div ref={scroll} className={figure.scroll} role="region" aria-label="Bars of saves" tabIndex={0}>
        <svg width={LABELS} height={height} className={classes(figure.drawing, figure.fixed)} aria-hidden="true">
          {rows.map((row, index) => (
            <Ticks key={row.title} row={row} top={topOf(index)} />
          ))}
          <text y={height - 6} className={figure.label}>
            Step
          </text>
        </svg>
        <svg
          role="img"
          aria-label={summary(points)}
          width={plot + DIGIT}
          height={height}
          className={figure.drawing}
          onMouseMove={(event) => {
            const x = event.clientX - event.currentTarget.getBoundingClientRect().left
            setPointed(Math.min(points.length - 1, Math.max(0, Math.floor(x / slot))))
          }}
          onMouseLeave={() => {
            setPointed(null)
          }}
        >
          {pointed !== null && <rect x={pointed * slot} width={slot} height={height - AXIS} className={styles.pointed} />}
          {rows.map((row, index) => (
            <Bars key={row.title} row={row} points={points} top={topOf(index)} slot={slot} />
          ))}
          <Steps points={points} slot={slot} y={height - AXIS} />
        </svg>
      </div>
      <p className={figure.said} data-active={active !== undefined}>
        {active === undefined ? 'Point at a bar to read it.' : sentence(active)}
      </p>
      <ul className={figure.legend}>
        <li>
          <svg width="14" height="12" aria-hidden="true">
            <rect x="1" y="1" width="12" height="10" className={styles.whole} />
          </svg>
          all it holds
        </li>
        <li>
          <svg width="14" height="12" aria-hidden="true">
            <rect x="1" y="4" width="12" height="8" className={styles.bar} />
          </svg>
          what it brought to the store
        </li>
      </ul>
      <TableAlternative>
        <PointsTable points={points} />
      </TableAlternative>
    </div>
  )
}

function Ticks({ row, top }: { row: Row; top: number }): ReactNode {
  return (
    <g>
      <text y={top - 14} className={classes(figure.label, figure.strong)}>
        {row.title}
      </text>
      {row.axis.ticks.map((tick) => (
        <text key={tick} x={LABELS - 6} y={barTop(row, tick, top) + 4} className={classes(figure.label, figure.end)}>
          {row.tick(tick)}
        </text>
      ))}
    </g>
  )
}

function Bars({ row, points, top, slot }: { row: Row; points: readonly SavePoint[]; top: number; slot: number }): ReactNode {
  const width = Math.min(MOST_BAR, slot * 0.7)
  const bar = (index: number, value: number, className: string | undefined): ReactNode => {
    const y = barTop(row, value, top)
    return <rect x={index * slot + (slot - width) / 2} y={y} width={width} height={top + PLOT - y} className={className} />
  }
  return (
    <g>
      {row.axis.ticks.map((tick) => {
        const y = barTop(row, tick, top)
        return <path key={tick} d={`M0 ${y}h${slot * points.length}`} className={figure.rule} />
      })}
      {points.map((point, index) => (
        <g key={point.id}>
          {row.whole !== undefined && bar(index, row.whole(point), styles.whole)}
          {bar(index, row.value(point), styles.bar)}
        </g>
      ))}
    </g>
  )
}

function Steps({ points, slot, y }: { points: readonly SavePoint[]; slot: number; y: number }): ReactNode {
  const longest = points.reduce((most, { step }) => Math.max(most, count(step).length), 1)
  const stride = labelStride(points.length, slot, longest * DIGIT + DIGIT)
  return (
    <g>
      {points.map(({ id, step }, index) =>
        index % stride === 0 ? (
          <text
            key={id}
            x={Math.max(index * slot + slot / 2, (count(step).length * DIGIT) / 2)}
            y={y + 15}
            className={classes(figure.label, figure.middle)}
          >
            {count(step)}
          </text>
        ) : null,
      )}
    </g>
  )
}

function PointsTable({ points }: { points: readonly SavePoint[] }): ReactNode {
  return (
    <DataTable
      caption="Size, duration and throughput of saves"
      rows={[...points].reverse()}
      rowKey={({ id }) => id}
      empty={null}
      columns={[
        { id: 'step', header: 'Step', cell: ({ step }) => count(step) },
        { id: 'attempt', header: 'Attempt', align: 'end', cell: ({ attempt }) => attempt },
        { id: 'raw', header: 'Holds', align: 'end', cell: ({ rawBytes }) => <Bytes value={rawBytes} /> },
        { id: 'new', header: 'Brought', align: 'end', cell: ({ newBytes }) => <Bytes value={newBytes} /> },
        { id: 'seconds', header: 'Duration', align: 'end', cell: ({ seconds }) => <Duration seconds={seconds} /> },
        {
          id: 'throughput',
          header: 'Throughput',
          align: 'end',
          cell: ({ rawBytes, seconds }) => humanRate(rawBytes, seconds),
        },
      ]}
    />
  )
}

function rowsOf(points: readonly SavePoint[]): Row[] {
  const largest = (of: (point: SavePoint) => number): number => points.reduce((most, point) => Math.max(most, of(point)), 0)
  const throughput = (point: SavePoint): number => point.throughput ?? 0
  return [
    {
      title: 'Size',
      axis: byteAxis(largest(({ rawBytes, newBytes }) => Math.max(rawBytes, newBytes)), 3),
      tick: humanBytes,
      value: ({ newBytes }) => newBytes,
      whole: ({ rawBytes }) => rawBytes,
    },
    { title: 'Duration', axis: secondAxis(largest(({ seconds }) => seconds), 3), tick: humanDuration, value: ({ seconds }) => seconds },
    { title: 'Throughput', axis: byteAxis(largest(throughput), 3), tick: (value) => humanRate(value, 1), value: throughput },
  ]
}

function topOf(index: number): number {
  return index * (HEAD + PLOT) + HEAD
}

function barTop({ axis }: Row, value: number, top: number): number {
  return top + PLOT * (1 - Math.min(1, value / axis.top))
}

function sentence({ step, attempt, onLine, rawBytes, newBytes, seconds }: SavePoint): string {
  const where = onLine ? '' : ', off the line'
  return (
    `Step ${count(step)} of attempt ${attempt}${where}: holds ${humanBytes(rawBytes)}, brought ${humanBytes(newBytes)},` +
    ` took ${humanDuration(seconds)}, ${humanRate(rawBytes, seconds)}`
  )
}

function summary(points: readonly SavePoint[]): string {
  const last = points.at(-1)
  const all = `Size, duration and throughput of ${counted(points.length, 'save')}.`
  return last === undefined ? all : `${all} The last one: ${sentence(last)}. All of them are in the table below.`
}
