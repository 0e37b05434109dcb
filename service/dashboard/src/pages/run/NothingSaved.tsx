import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Empty } from '../../components/Empty'

export interface NothingSavedProps {
  run: Pick<Message<'RunInfo'>, 'project' | 'name' | 'attempts'>
  title?: string
}

/** A run without what is to be shown, and how it would come to be: training is asked for it, files are pushed. */
export function NothingSaved({ run, title = 'The run has no checkpoint yet' }: NothingSavedProps): ReactNode {
  const place = `${run.project}/${run.name}`
  if (run.attempts > 0) {
    return (
      <Empty title={title} command={`shardkeep save-now ${place}`}>
        Training saves into it with <code>keeper.step</code>. For a checkpoint at its next step press <q>Checkpoint now</q>,
        or ask with
      </Empty>
    )
  }
  return (
    <Empty title={title} command={`shardkeep push ./weights ${place} --step 0`}>
      Training saves into it with <code>keeper.step</code>; files become a checkpoint with
    </Empty>
  )
}
