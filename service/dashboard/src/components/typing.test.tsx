// @vitest-environment jsdom
import { act, type ReactNode } from 'react'
import { createRoot, type Root } from 'react-dom/client'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SearchBox } from './SearchBox'
import { useSettled } from './useSettled'

vi.stubGlobal('IS_REACT_ACT_ENVIRONMENT', true)

let root: Root

beforeEach(() => {
  vi.useFakeTimers()
  const place = document.createElement('div')
  document.body.replaceChildren(place)
  root = createRoot(place)
})

afterEach(() => {
  act(() => {
    root.unmount()
  })
  vi.useRealTimers()
})

function show(page: ReactNode): void {
  act(() => {
    root.render(page)
  })
}

function wait(milliseconds: number): void {
  act(() => {
    vi.advanceTimersByTime(milliseconds)
  })
}

function field(): HTMLInputElement {
  const [found] = document.querySelectorAll('input')
  if (found === undefined) throw new Error('there is no field')
  return found
}

function type(text: string): void {
  act(() => {
    // As the browser does it, past the value that React keeps.
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')?.set?.call(field(), text)
    field().dispatchEvent(new Event('input', { bubbles: true }))
  })
}

test('what is typed in one go is settled once', () => {
  const seen: string[] = []
  function Asking({ text }: { text: string }): ReactNode {
    const settled = useSettled(text)
    if (seen.at(-1) !== settled) seen.push(settled)
    return null
  }
  for (const text of ['', 'v', 'vi', 'vis', 'visi', 'visio', 'vision']) {
    show(<Asking text={text} />)
    wait(100)
  }
  wait(300)
  expect(seen).toEqual(['', 'vision'])
})

test('a search that comes late is made as the page is by then', () => {
  const before = vi.fn()
  const after = vi.fn()
  show(<SearchBox label="Search" value="" onSearch={before} />)
  type('base')
  show(<SearchBox label="Search" value="" onSearch={after} />)
  wait(400)
  expect(before).not.toHaveBeenCalled()
  expect(after).toHaveBeenCalledExactlyOnceWith('base')
})

test('a blank at the end stays in the field, and is no other search', () => {
  const search = vi.fn()
  show(<SearchBox label="Search" value="" onSearch={search} />)
  type('scrub ')
  wait(400)
  expect(search).toHaveBeenCalledExactlyOnceWith('scrub ')
  show(<SearchBox label="Search" value="scrub" onSearch={search} />)
  expect(field().value).toBe('scrub ')
  wait(400)
  expect(search).toHaveBeenCalledOnce()
})

test('a change of the address by itself says what the field holds', () => {
  const search = vi.fn()
  show(<SearchBox label="Search" value="one" onSearch={search} />)
  type('two')
  wait(400)
  show(<SearchBox label="Search" value="two" onSearch={search} />)
  show(<SearchBox label="Search" value="one" onSearch={search} />)
  expect(field().value).toBe('one')
  wait(400)
  expect(search).toHaveBeenCalledExactlyOnceWith('two')
})

test('Enter searches at once, and once', () => {
  const search = vi.fn()
  show(<SearchBox label="Search" value="" onSearch={search} />)
  type('base')
  act(() => {
    field().dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }))
  })
  expect(search).toHaveBeenCalledExactlyOnceWith('base')
  wait(400)
  show(<SearchBox label="Search" value="base" onSearch={search} />)
  wait(400)
  expect(search).toHaveBeenCalledOnce()
})
