import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { Stat, Stats } from '../../components/Stat'
import { count, counted, ratio } from '../../format/numbers'
import type { Window } from './search'
import { sum } from './stretches'

export interface FiguresProps {
  overview: Message<'OverviewInfo'>
  window: Window
}

/** The figures at the top. */
export function Figures({ overview, window }: FiguresProps): ReactNode {
  const inWindow = sum(overview.saves)
  const since = window.label.toLowerCase()
  return (
    <Stats>
      <Stat name="Stored" value={<Bytes value={overview.stored_bytes} />} note="each chunk once" />
      <Stat name="Logical" value={<Bytes value={overview.raw_bytes} />} note="each checkpoint whole" />
      <Stat name="Deduplication" value={ratio(overview.named_bytes, overview.stored_bytes)} note="named to stored" />
      <Stat name="Compression" value={ratio(overview.raw_bytes, overview.named_bytes)} note="logical to named" />
      <Stat
        name="Runs"
        value={<Link to="/runs">{count(overview.runs)}</Link>}
        note={`in ${counted(overview.projects, 'project')}`}
      />
      <Stat
        name="Checkpoints"
        value={count(overview.committed_checkpoints)}
        note={`${count(overview.deleted_checkpoints)} deleted, restorable`}
      />
      <Stat name="Saving now" value={<Link to="/saves">{count(overview.open_checkpoints)}</Link>} note="open or validating" />
      <Stat
        name="Failed saves"
        value={count(inWindow.aborted)}
        note={`${since}; ${count(overview.aborted_checkpoints)} in all`}
      />
    </Stats>
  )
}
