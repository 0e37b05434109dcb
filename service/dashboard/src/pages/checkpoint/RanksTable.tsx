import type { ReactNode } from 'react'
import { manifestHref } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { DataTable, type Column } from '../../components/DataTable'
import { Duration } from '../../components/Duration'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import { rankWords } from './rankWords'

type RankPart = Message<'RankPart'>

export interface RanksTableProps {
  checkpoint: string
  ranks: readonly RankPart[]
  empty: ReactNode
  /** Whether it is still being saved: then what is sent and how long a rank is silent counts, else when it arrived. */
  running: boolean
}

/** What each rank's part is, or was. */
export function RanksTable({ checkpoint, ranks, empty, running }: RanksTableProps): ReactNode {
  const ended: Column<RankPart>[] = [
    { id: 'arrived', header: 'Arrived', cell: ({ arrived_at }) => <When time={arrived_at} /> },
    { id: 'seconds', header: 'Took', align: 'end', cell: ({ seconds }) => <Duration seconds={seconds} /> },
    { id: 'manifest', header: 'Manifest', align: 'end', cell: ({ manifest_bytes }) => <Bytes value={manifest_bytes} /> },
    { id: 'download', header: 'Download', cell: (part) => <ManifestLink checkpoint={checkpoint} part={part} /> },
  ]
  const live: Column<RankPart>[] = [
    { id: 'opened', header: 'Opened', cell: ({ opened_at }) => <When time={opened_at} /> },
    { id: 'seconds', header: 'Took', align: 'end', cell: ({ seconds }) => <Duration seconds={seconds} /> },
    { id: 'offered', header: 'Offered', align: 'end', cell: ({ offered_bytes }) => <Bytes value={offered_bytes} /> },
    { id: 'present', header: 'Was there', align: 'end', cell: ({ present_bytes }) => <Bytes value={present_bytes} /> },
    {
      id: 'missing',
      header: 'Chunks missing',
      align: 'end',
      cell: ({ state, missing_chunks: missing }) => (state === 'absent' ? '–' : count(missing)),
    },
    { id: 'idle', header: 'Silent for', align: 'end', cell: ({ idle_seconds }) => <Duration seconds={idle_seconds} /> },
    { id: 'lease', header: 'Lease until', cell: ({ lease_until }) => <When time={lease_until} /> },
  ]
  return (
    <DataTable<RankPart>
      caption="Ranks"
      rows={ranks}
      rowKey={({ rank }) => String(rank)}
      empty={empty}
      columns={[
        { id: 'rank', header: 'Rank', cell: ({ rank }) => count(rank) },
        { id: 'state', header: 'State', cell: ({ state }) => <StateBadge state={state} label={rankWords(state, running)} /> },
        ...(running ? live : ended),
      ]}
    />
  )
}

function ManifestLink({ checkpoint, part }: { checkpoint: string; part: RankPart }): ReactNode {
  if (part.state !== 'arrived') return '–'
  return (
    <a
      href={manifestHref(checkpoint, part.rank)}
      download={`${checkpoint}-rank-${part.rank}.manifest`}
      aria-label={`Download the manifest of rank ${part.rank}`}
    >
      Manifest
    </a>
  )
}
