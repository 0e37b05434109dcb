import { expect, it } from 'vitest'
import { isName } from './names'

it.each(['a', 'vision', 'resnet-50_v1.5', '0', 'x'.repeat(128)])('takes %j', (text) => {
  expect(isName(text)).toBe(true)
})

it.each(['', '.a', '-a', 'a.', 'a b', '../a', 'a/b', '<b>', 'é', 'a\n', 'x'.repeat(129)])('takes no %j', (text) => {
  expect(isName(text)).toBe(false)
})
