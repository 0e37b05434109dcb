import { expect, test } from 'vitest'
import { regionText, shapeText } from './shapes'

test('shapes read as in Python', () => {
  expect([shapeText([]), shapeText([7]), shapeText([3, 4])]).toEqual(['()', '(7,)', '(3, 4)'])
})

test('regions read as slices', () => {
  expect(regionText([0, 16], [8, 16])).toBe('[0:8, 16:32]')
  expect(regionText([], [])).toBe('[]')
})
