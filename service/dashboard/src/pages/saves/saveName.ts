import type { Message } from '../../api/client'
import { count } from '../../format/numbers'

/** A save by its step and run: `step 7 of demo/gpt`. */
export function saveName({ step, project, run }: Pick<Message<'CheckpointSummary'>, 'step' | 'project' | 'run'>): string {
  return `step ${count(step)} of ${project}/${run}`
}
