import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { dialogOpened, onceNoneIsOpen } from './openDialogs'

beforeEach(() => {
  vi.useFakeTimers()
})

afterEach(() => {
  vi.useRealTimers()
})

test('without a dialog it is done at once', () => {
  const act = vi.fn()
  onceNoneIsOpen(act)
  expect(act).toHaveBeenCalledOnce()
})

test('beside a dialog it waits for its end, and for that of the one that opens in its place', () => {
  const act = vi.fn()
  const closeFirst = dialogOpened()
  onceNoneIsOpen(act)
  closeFirst()
  const closeSecond = dialogOpened()
  vi.runAllTimers()
  expect(act).not.toHaveBeenCalled()
  closeSecond()
  vi.runAllTimers()
  expect(act).toHaveBeenCalledOnce()
})
