import type { ReactNode } from 'react'
import { resumeSnippets, type ResumeTarget } from '../format/resumeSnippets'
import { Panel } from './Panel'
import { Snippet } from './Snippet'

/** How to continue from a run or a checkpoint, to copy. */
export function ResumeSnippets({ run, checkpoint }: Omit<ResumeTarget, 'url'>): ReactNode {
  const target = checkpoint === undefined ? { run } : { run, checkpoint }
  const { training, reading, shell } = resumeSnippets({ ...target, url: globalThis.location.origin })
  return (
    <>
      <Panel title="In the training script, on every rank">
        <Snippet text={training} label="training snippet" />
      </Panel>
      <Panel title="Without a training loop">
        <Snippet text={reading} label="reading snippet" />
      </Panel>
      <Panel title="In a shell">
        <Snippet text={shell} label="shell commands" />
      </Panel>
    </>
  )
}
