import { useEffect, useRef, useState, type ReactNode } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useWidth } from '../../charts/useWidth'
import { byteAxis } from '../../charts/ticks'
import { humanBytes } from '../../format/bytes'
import { absoluteTime, shortTime } from '../../format/times'
import { useColours, type Colours } from './colours'
import styles from './GrowthChart.module.css'
import type { Window } from './search'
import type { Growth } from './stretches'

const HEIGHT = 200
const AXIS_FONT = '11px system-ui, sans-serif'

export interface GrowthChartProps {
  grown: Growth
  window: Window
}

/** Two lines over time, on a canvas; the panel says the same in words and as a table. */
export function GrowthChart({ grown, window }: GrowthChartProps): ReactNode {
  const [measure, width] = useWidth()
  const target = useRef<HTMLDivElement>(null)
  const colours = useColours()
  const [pointed, setPointed] = useState<number | null>(null)

  useEffect(() => {
    if (target.current === null || width === 0) return undefined
    const data: uPlot.AlignedData = [grown.times, grown.logical, grown.stored]
    const largest = grown.logical.at(-1) ?? 0
    const spanSeconds = (grown.times.at(-1) ?? 0) - (grown.times[0] ?? 0)
    const plot = new uPlot(options({ width, colours, largest, spanSeconds, setPointed }), data, target.current)
    return () => {
      plot.destroy()
    }
  }, [grown, width, colours])

  const last = grown.times.length - 1
  const at = Math.min(pointed ?? last, last)
  return (
    <figure ref={measure} className={styles.figure}>
      <div ref={target} role="img" aria-label={`Growth, ${window.label.toLowerCase()}`} className={styles.plot} />
      <figcaption className={styles.legend}>
        <span className={styles.logical}>Logical {humanBytes(grown.logical[at] ?? 0)}</span>
        <span className={styles.stored}>Stored {humanBytes(grown.stored[at] ?? 0)}</span>
        <span>{pointed === null ? 'in all' : `by ${absoluteTime(new Date((grown.times[at] ?? 0) * 1000))}`}</span>
      </figcaption>
    </figure>
  )
}

interface PlotOptions {
  width: number
  colours: Colours
  largest: number
  spanSeconds: number
  setPointed: (index: number | null) => void
}

function options({ width, colours, largest, spanSeconds, setPointed }: PlotOptions): uPlot.Options {
  const label = (time: number): string => shortTime(new Date(time * 1000), spanSeconds)
  const { top, ticks } = byteAxis(largest)
  const axis = { stroke: colours.soft, font: AXIS_FONT, grid: { stroke: colours.line, width: 1 }, ticks: { show: false } }
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    scales: { y: { range: [0, top] } },
    axes: [
      { ...axis, grid: { show: false }, space: 80, size: 26, values: (_plot, splits) => splits.map(label) },
      { ...axis, size: 64, splits: () => ticks, values: (_plot, splits) => splits.map(humanBytes) },
    ],
    series: [
      {},
      // Dashes tell the lines apart where colours do not.
      { stroke: colours.soft, width: 1.5, dash: [5, 4], points: { show: false } },
      { stroke: colours.accent, fill: colours.accentSoft, width: 2, points: { show: false } },
    ],
    hooks: {
      setCursor: [
        (plot) => {
          setPointed(plot.cursor.idx ?? null)
        },
      ],
    },
  }
}
