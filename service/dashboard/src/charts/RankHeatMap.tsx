import { Link } from '@tanstack/react-router'
import { useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import type { Message } from '../api/client'
import { Button } from '../components/Button'
import { classes } from '../components/classes'
import { count } from '../format/numbers'
import { rankRange } from '../format/ranks'
import { describeCell, bandName } from './cellWords'
import figure from './Figure.module.css'
import { cellAt, cellBeside, cellPaths, cellSize, MOST_BANDS, worstCell, type CellSize } from './heatCells'
import styles from './RankHeatMap.module.css'
import { bandsOf, lastRank, layOutHeatMap, type Band, type HeatMap } from './rankTimes'
import { RankLegend } from './RankLegend'
import { labelStride } from './timelineLayout'
import { useScrolledToEnd } from './useScrolledToEnd'

const LABELS = 64
const AXIS = 22
const LEAST_LABEL = 12
const DIGIT = 7

interface Place {
  band: number
  save: number
}

export interface RankHeatMapProps {
  /** Newest first. */
  saves: readonly Message<'SaveTimes'>[]
  /** The ranks to show, as the URL has them; all without. */
  ranks: Band | undefined
  onRanks: (ranks: Band | undefined) => void
}

/** How long each rank took in each save, against the save's median: who is slow, and who is missing. */
export function RankHeatMap({ saves, ranks, onRanks }: RankHeatMapProps): ReactNode {
  const scroll = useScrolledToEnd(saves[0]?.checkpoint_id)
  const last = lastRank(saves)
  const first = Math.min(ranks?.first ?? 0, Math.max(0, last))
  const map = layOutHeatMap(saves, bandsOf(first, Math.min(ranks?.last ?? last, last), MOST_BANDS))
  const size = cellSize(map.bands.length, map.saves.length)
  const [chosen, setChosen] = useState<Place | null>(null)
  const at = chosen !== null && map.cells[chosen.band]?.[chosen.save] !== undefined ? chosen : worstCell(map)
  const band = map.bands[at.band]
  const save = map.saves[at.save]
  return (
    <div className={figure.figure}>
      <div ref={scroll} className={figure.scroll}>
        <RankLabels map={map} size={size} />
        <Cells map={map} size={size} at={at} onChoose={setChosen} />
      </div>
      <div className={styles.chosen}>
        <span>{describeCell(map, at)}</span>
        {save !== undefined && (
          <Link to="/checkpoints/$checkpoint" params={{ checkpoint: save.checkpoint_id }}>
            Open step {count(save.step)}
          </Link>
        )}
        {band !== undefined && band.first !== band.last && (
          <Button
            onClick={() => {
              onRanks(band)
            }}
          >
            Show {bandName(band)} one by one
          </Button>
        )}
        {ranks !== undefined && (
          <Button
            onClick={() => {
              onRanks(undefined)
            }}
          >
            Show all ranks
          </Button>
        )}
      </div>
      <RankLegend />
    </div>
  )
}

interface CellsProps {
  map: HeatMap
  size: CellSize
  at: Place
  onChoose: (place: Place) => void
}

/** The drawing, and over it the one cell that is chosen: a grid of which only that cell is in the page. */
function Cells({ map, size, at, onChoose }: CellsProps): ReactNode {
  const moved = useRef(false)
  const width = map.saves.length * size.width
  const height = map.bands.length * size.height
  const paths = cellPaths(map, size)
  const move = (event: KeyboardEvent): void => {
    const next = cellBeside(at, event.key, map)
    if (next.band === at.band && next.save === at.save) return
    event.preventDefault()
    moved.current = true
    onChoose(next)
  }
  return (
    <div
      role="grid"
      aria-label="Time of each rank in each save"
      aria-rowcount={map.bands.length}
      aria-colcount={map.saves.length}
      tabIndex={-1}
      className={styles.grid}
      onKeyDown={move}
      onClick={(event) => {
        const box = event.currentTarget.getBoundingClientRect()
        const found = cellAt(event.clientX - box.left, event.clientY - box.top, size, map)
        if (found !== null) onChoose(found)
      }}
    >
      <svg width={width + DIGIT * 3} height={height + AXIS} className={figure.drawing} aria-hidden="true">
        {paths.timed.map((path, level) => (
          <path key={level} d={path} className={styles[`level${level}`]} />
        ))}
        <path d={paths.waiting} className={styles.waiting} />
        <path d={paths.missing} className={styles.missing} />
        <Steps map={map} size={size} y={height} />
      </svg>
      <div role="row" aria-rowindex={at.band + 1}>
        <div
          // A cell of its own for each place, so that a screen reader says each one.
          key={`${at.band}-${at.save}`}
          ref={(cell) => {
            if (moved.current) cell?.focus()
          }}
          role="gridcell"
          aria-colindex={at.save + 1}
          aria-label={describeCell(map, at)}
          tabIndex={0}
          className={styles.cell}
          onBlur={() => {
            moved.current = false
          }}
          style={{ left: at.save * size.width, top: at.band * size.height, width: size.width, height: size.height }}
        />
      </div>
    </div>
  )
}

function RankLabels({ map, size }: { map: HeatMap; size: CellSize }): ReactNode {
  const stride = labelStride(map.bands.length, size.height, LEAST_LABEL)
  const height = map.bands.length * size.height + AXIS
  return (
    <svg width={LABELS} height={height} className={classes(figure.drawing, figure.fixed)} aria-hidden="true">
      {map.bands.map((band, index) =>
        index % stride === 0 ? (
          <text
            key={band.first}
            x={LABELS - 8}
            y={index * size.height + size.height / 2 + 4}
            className={classes(figure.label, figure.end)}
          >
            {rankRange(band.first, band.last)}
          </text>
        ) : null,
      )}
      <text x={LABELS - 8} y={height - 6} className={classes(figure.label, figure.end)}>
        Step
      </text>
    </svg>
  )
}

function Steps({ map, size, y }: { map: HeatMap; size: CellSize; y: number }): ReactNode {
  const longest = map.saves.reduce((most, { step }) => Math.max(most, count(step).length), 1)
  const stride = labelStride(map.saves.length, size.width, longest * DIGIT + DIGIT)
  const last = map.saves.length - 1
  return (
    <g>
      {map.saves.map(({ checkpoint_id, step }, index) =>
        (last - index) % stride === 0 ? (
          <text
            key={checkpoint_id}
            x={(index + 0.5) * size.width}
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
