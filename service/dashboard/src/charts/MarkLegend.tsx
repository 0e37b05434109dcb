import type { ReactNode } from 'react'
import type { Message } from '../api/client'
import { Mark, type MarkedCheckpoint } from './Mark'
import { isOffLine, STATES } from './marks'
import figure from './Figure.module.css'

const PLAIN: MarkedCheckpoint = { state: 'committed', pinned: false, quarantined: false, on_line: true, sequence: 1 }

/** What the marks mean, of those that are there, and how many of each there are. */
export function MarkLegend({ checkpoints }: { checkpoints: readonly Message<'CheckpointSummary'>[] }): ReactNode {
  const entries = [
    ...STATES.map((state) => ({
      text: state,
      look: { ...PLAIN, state },
      count: checkpoints.filter((checkpoint) => checkpoint.state === state).length,
    })),
    { text: 'pinned', look: { ...PLAIN, pinned: true }, count: checkpoints.filter(({ pinned }) => pinned).length },
    {
      text: 'quarantined',
      look: { ...PLAIN, quarantined: true },
      count: checkpoints.filter(({ quarantined }) => quarantined).length,
    },
    {
      text: 'off the line',
      look: { ...PLAIN, on_line: false },
      count: checkpoints.filter(isOffLine).length,
    },
  ].filter(({ count }) => count > 0)
  return (
    <ul className={figure.legend}>
      {entries.map(({ text, look, count }) => (
        <li key={text}>
          <svg viewBox="-12 -14 24 28" width="20" height="23" aria-hidden="true">
            <Mark checkpoint={look} />
          </svg>
          {count} {text}
        </li>
      ))}
    </ul>
  )
}
