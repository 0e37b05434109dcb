/** What continues from a checkpoint, as a program and as commands; the token is never part of it. */
export interface ResumeSnippets {
  training: string
  reading: string
  shell: string
}

export interface ResumeTarget {
  url: string
  /** `project/run`. */
  run: string
  /** One checkpoint; the last consistent one of the run without. */
  checkpoint?: { id: string; step: number }
}

export function resumeSnippets({ url, run, checkpoint }: ResumeTarget): ResumeSnippets {
  const wanted = checkpoint === undefined ? '' : `"${checkpoint.id}"`
  const found = checkpoint === undefined ? `client.run("${run}").latest()` : `client.checkpoint(${wanted})`
  const named = checkpoint?.id ?? run
  return {
    training: [
      'import shardkeep as sk',
      '',
      `run = sk.connect("${url}").run("${run}")`,
      'keeper = sk.Checkpointer(run, model=model, optimizer=optimizer)',
      `start = keeper.resume(${wanted})  # ${checkpoint === undefined ? 'the last consistent checkpoint' : `step ${checkpoint.step}`}`,
    ].join('\n'),
    reading: [
      'import shardkeep as sk',
      '',
      `client = sk.connect("${url}")`,
      `checkpoint = ${found}`,
      'checkpoint.load_into({"model": model.state_dict()})',
    ].join('\n'),
    shell: [
      `export SHARDKEEP_URL=${url}`,
      `shardkeep show ${named}`,
      `shardkeep verify ${named}`,
      `shardkeep pull ${named} ./weights --prefix model`,
    ].join('\n'),
  }
}
