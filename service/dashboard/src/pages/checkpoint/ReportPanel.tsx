import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Facts } from '../../components/Facts'
import { Panel } from '../../components/Panel'
import { Names } from './AbortPanel'

/** What validation found worth telling; none of it stopped the commit. */
export function ReportPanel({ report }: { report: Message<'CheckpointReport'> }): ReactNode {
  const { divergent_buffers, per_rank_values, values_of_some_ranks, tensors_gone, warnings } = report
  const some = Object.entries(values_of_some_ranks ?? {}).map(([name, rank]) => `${name}, from rank ${rank}`)
  const found = [
    { name: 'Warnings', names: warnings ?? [] },
    { name: 'Tensors the parent had', names: tensors_gone ?? [] },
    { name: 'Buffers that differ by rank', names: divergent_buffers ?? [] },
    { name: 'Values that differ by rank', names: per_rank_values ?? [] },
    { name: 'Values of some ranks', names: some },
  ].filter(({ names }) => names.length > 0)
  return (
    <Panel title="What validation noticed">
      {found.length === 0 ? (
        <p>Nothing.</p>
      ) : (
        <Facts facts={found.map(({ name, names }) => ({ name, value: <Names names={names} /> }))} />
      )}
    </Panel>
  )
}
