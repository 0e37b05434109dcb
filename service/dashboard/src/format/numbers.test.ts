import { expect, test } from 'vitest'
import { count, counted, metric, metricNumber, percent, ratio } from './numbers'

test('counts have separators, and one is one', () => {
  expect(count(1234567)).toBe('1,234,567')
  expect(counted(1, 'run')).toBe('1 run')
  expect(counted(2, 'entry', 'entries')).toBe('2 entries')
})

test('a ratio of nothing is a dash', () => {
  expect(ratio(342, 100)).toBe('3.42×')
  expect(ratio(5, 0)).toBe('–')
})

test('what is nearly all is not all, what is nearly none is not none', () => {
  expect(percent(0.99999)).toBe('> 99.9%')
  expect(percent(0.00001)).toBe('< 0.1%')
  expect(percent(1)).toBe('100%')
  expect(percent(0)).toBe('0%')
  expect(percent(0.125)).toBe('12.5%')
})

test('metrics that are no numbers stay what they are', () => {
  expect(metric('NaN')).toBe('NaN')
  expect(metric('-Infinity')).toBe('-Infinity')
  expect(metric(0.000123456)).toBe('1.235e-4')
  expect(metric(2.5)).toBe('2.5')
  expect(metricNumber('Infinity')).toBe(Number.POSITIVE_INFINITY)
  expect(metricNumber(undefined)).toBeNaN()
})
