import { expect, test } from 'vitest'
import { backTo } from './backTo'

test('a page of the dashboard is gone back to with its filters', () => {
  expect(backTo('/runs?search=a%2Fb')).toBe('/runs?search=a%2Fb')
})

test.each([undefined, '', 'runs', '//evil.example', '/\\evil.example', 'https://evil.example/runs', 'javascript:alert(1)', '/%2e%2e//evil.example', '/sign-in?back=%2F'])(
  '%s leads to the overview',
  (back) => {
    expect(backTo(back)).toBe('/')
  },
)
