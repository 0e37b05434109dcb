import { expect, it } from 'vitest'
import { detailLine } from './detailLine'

it('names each detail that is there', () => {
  const detail = { reason: 'no_rule', step: 100, before: null, projects: ['a', 'b'] }
  expect(detailLine({ detail, target: 'ckp_1' })).toBe('reason: no_rule, step: 100, projects: ["a","b"]')
})

it('names what was changed where there is no detail', () => {
  expect(detailLine({ detail: null, target: 'ckp_1' })).toBe('ckp_1')
  expect(detailLine({ detail: {}, target: 'ckp_1' })).toBe('ckp_1')
})

it('keeps markup as the text it is, and is never long', () => {
  const detail = { name: '<img src=x onerror=alert(1)>', reason: 'x'.repeat(500) }
  const line = detailLine({ detail, target: 'run_1' })
  expect(line).toMatch(/^name: <img src=x onerror=alert\(1\)>, reason: x+…$/)
  expect(line).toHaveLength(120)
})
