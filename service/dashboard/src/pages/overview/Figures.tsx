import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { given } from '../../app/searchParams'
import { useRefusal } from '../../app/signedIn'
import { Bytes } from '../../components/Bytes'
import { Stat, Stats } from '../../components/Stat'
import { count, counted, ratio } from '../../format/numbers'
import type { Window } from './search'
import { sum } from './stretches'

export interface FiguresProps {
  overview: Message<'OverviewInfo'>
  window: Window
  /** The one they are of; undefined for all that the token sees. */
  project: string | undefined
}

/** The figures at the top; what they count is a link away, of the same project. */
export function Figures({ overview, window, project }: FiguresProps): ReactNode {
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
        value={
          <Link to="/runs" search={given({ project })}>
            {count(overview.runs)}
          </Link>
        }
        note={`in ${counted(overview.projects, 'project')}`}
      />
      <Stat
        name="Checkpoints"
        value={count(overview.committed_checkpoints)}
        note={`${count(overview.deleted_checkpoints)} deleted, restorable`}
      />
      <Stat
        name="Saving now"
        value={
          <Link to="/saves" search={given({ project })}>
            {count(overview.open_checkpoints)}
          </Link>
        }
        note="open or validating"
      />
      <Stat
        name="Failed saves"
        value={<Failed saves={inWindow.aborted} since={overview.saves[0]?.start} project={project} />}
        note={`${since}; ${count(overview.aborted_checkpoints)} in all`}
      />
    </Stats>
  )
}

interface FailedProps {
  saves: number
  since: string | undefined
  project: string | undefined
}

/** How many failed. Which of all runs they are of, and why they did, the audit log has, for those who may read it. */
function Failed({ saves, since, project }: FailedProps): ReactNode {
  const refusal = useRefusal('admin')
  if (saves === 0 || refusal !== undefined) return count(saves)
  return (
    <Link to="/audit" search={given({ action: 'checkpoint.abort', project, since })}>
      {count(saves)}
    </Link>
  )
}
