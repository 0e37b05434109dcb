import { expect, test } from 'vitest'
import { resumeSnippets } from './resumeSnippets'

const RUN = { url: 'https://keep.example', run: 'demo/gpt' }

test('a run is resumed from its last consistent checkpoint', () => {
  const { training, reading, shell } = resumeSnippets(RUN)
  expect(training).toContain('sk.connect("https://keep.example").run("demo/gpt")')
  expect(training).toContain('keeper.resume()  # the last consistent checkpoint')
  expect(reading).toContain('client.run("demo/gpt").latest()')
  expect(shell).toContain('shardkeep pull demo/gpt ./weights')
})

test('a checkpoint is resumed from by its id', () => {
  const { training, reading, shell } = resumeSnippets({ ...RUN, checkpoint: { id: 'ckp_1', step: 200 } })
  expect(training).toContain('keeper.resume("ckp_1")  # step 200')
  expect(reading).toContain('client.checkpoint("ckp_1")')
  expect(shell).toContain('shardkeep show ckp_1\n')
})
