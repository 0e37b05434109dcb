import { useId, useState, type ReactNode } from 'react'
import { timeLabels } from '../../charts/timeLabels'
import { count } from '../../format/numbers'
import { absoluteTime } from '../../format/times'
import styles from './SaveCountBars.module.css'
import { countTicks, sum, type Stretch } from './stretches'

const HEIGHT = 168
const LEFT = 36
const BOTTOM = 20
const TOP = 8
const LABEL_WIDTH = 60
const TICK = 4

export interface SaveCountBarsProps {
  saves: readonly Stretch[]
  /** How much time each of them covers; they begin at whole multiples of it. */
  seconds: number
  width: number
}

/** One bar a stretch of time: what was committed below, what failed hatched on top of it. */
export function SaveCountBars({ saves, seconds, width }: SaveCountBarsProps): ReactNode {
  const hatch = useId()
  const [pointed, setPointed] = useState<Stretch | null>(null)
  const ticks = countTicks(Math.max(0, ...saves.map(({ committed, aborted }) => committed + aborted)))
  const top = ticks.at(-1) ?? 1
  const plotHeight = HEIGHT - BOTTOM - TOP
  const step = (width - LEFT) / Math.max(1, saves.length)
  // The window may cut the first one, which is drawn whole.
  const begin = Math.floor(Date.parse(saves[0]?.start ?? '') / 1000 / seconds) * seconds
  const labels = timeLabels(begin, begin + saves.length * seconds, (width - LEFT) / LABEL_WIDTH)
  const y = (value: number): number => TOP + plotHeight * (1 - value / top)
  const total = sum(saves)
  return (
    <figure className={styles.figure}>
      <svg
        role="img"
        aria-label={`${count(total.committed)} saves committed and ${count(total.aborted)} failed, by time`}
        width={width}
        height={HEIGHT}
        className={styles.drawing}
        onMouseLeave={() => {
          setPointed(null)
        }}
      >
        <defs>
          <pattern id={hatch} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="5" height="5" className={styles.hatchGround} />
            <rect width="2.5" height="5" className={styles.hatchLine} />
          </pattern>
        </defs>
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={width} y1={y(tick)} y2={y(tick)} className={styles.rule} />
            <text x={LEFT - 6} y={y(tick) + 4} className={styles.count}>
              {count(tick)}
            </text>
          </g>
        ))}
        {saves.map((stretch, index) => {
          const x = LEFT + index * step
          const { committed, aborted } = stretch
          return (
            <g
              key={stretch.start}
              onMouseEnter={() => {
                setPointed(stretch)
              }}
            >
              <rect x={x} y={TOP} width={step} height={plotHeight} className={styles.target} />
              <Bar x={x} width={step} y={y(committed)} height={y(0) - y(committed)} className={styles.committed} />
              <Bar x={x} width={step} y={y(committed + aborted)} height={y(0) - y(aborted)} fill={`url(#${hatch})`} />
            </g>
          )
        })}
        {labels.map(({ at, text }) => {
          const x = LEFT + ((at - begin) / seconds) * step
          return (
            <g key={at}>
              <line x1={x} x2={x} y1={y(0)} y2={y(0) + TICK} className={styles.tick} />
              {x + LABEL_WIDTH <= width && (
                <text x={x} y={HEIGHT - 3} className={styles.label} data-at={at}>
                  {text}
                </text>
              )}
            </g>
          )
        })}
      </svg>
      <figcaption className={styles.legend}>
        <span className={styles.committedKey}>Committed {count((pointed ?? total).committed)}</span>
        <span className={styles.failedKey}>Failed {count((pointed ?? total).aborted)}</span>
        <span>{pointed === null ? 'in all' : `from ${absoluteTime(new Date(pointed.start))}`}</span>
      </figcaption>
    </figure>
  )
}

interface BarProps {
  x: number
  y: number
  width: number
  height: number
  className?: string | undefined
  fill?: string
}

function Bar({ x, width, height, ...rest }: BarProps): ReactNode {
  return height > 0 ? <rect {...rest} x={x + 1} width={Math.max(1, width - 2)} height={Math.max(1, height)} /> : null
}
