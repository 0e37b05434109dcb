import type { ReactNode } from 'react'
import type { Message } from '../api/client'
import { DataTable } from '../components/DataTable'
import { Duration } from '../components/Duration'
import { count } from '../format/numbers'
import { slowestRanks, type RankRecord } from './rankTimes'

const MOST = 20

/** The heat map's alternative: the ranks that are missing or slow, worst first; below a heading that says how many more there are. */
export function SlowestRanks({ saves }: { saves: readonly Message<'SaveTimes'>[] }): ReactNode {
  const found = slowestRanks(saves)
  return (
    <>
      <h2>{`Ranks that are missing or slow${found.length > MOST ? `: the worst ${MOST} of ${count(found.length)}` : ''}`}</h2>
      <DataTable<RankRecord>
        caption="Ranks that are missing or slow, worst first"
        rows={found.slice(0, MOST)}
        rowKey={({ rank }) => String(rank)}
        empty={<p>No rank was missing or slow in these saves.</p>}
        columns={[
          { id: 'rank', header: 'Rank', cell: ({ rank }) => rank },
          { id: 'missing', header: 'Never arrived', align: 'end', cell: ({ missing, saves: all }) => `${missing} of ${all}` },
          { id: 'slowest', header: 'Slowest of all', align: 'end', cell: ({ slowest }) => (slowest === 1 ? 'once' : `${slowest} times`) },
          { id: 'usual', header: 'Usually', align: 'end', cell: ({ usualRatio }) => times(usualRatio) },
          { id: 'worst', header: 'At worst', align: 'end', cell: ({ worstRatio }) => times(worstRatio) },
          { id: 'seconds', header: 'Took then', align: 'end', cell: ({ worstSeconds }) => <Duration seconds={worstSeconds} /> },
          { id: 'step', header: 'At step', align: 'end', cell: ({ worstStep }) => (worstStep === null ? '–' : count(worstStep)) },
        ]}
      />
    </>
  )
}

/** How many times the median. */
function times(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return '–'
  return `${value.toLocaleString('en', { maximumFractionDigits: 2 })}× median`
}
