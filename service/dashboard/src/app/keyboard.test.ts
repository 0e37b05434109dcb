// @vitest-environment jsdom
import { beforeEach, expect, test, vi } from 'vitest'
import { focusSearch, isForPage, moveRow, openRow, singleKeysOn, turnSingleKeys } from './keyboard'

beforeEach(() => {
  Element.prototype.scrollIntoView = vi.fn()
  document.body.innerHTML = `
    <main>
      <input type="search" value="old" />
      <table><tbody>
        <tr data-row="a" tabindex="-1"><td><a href="#a">a</a></td></tr>
        <tr data-row="b" tabindex="-1"><td><a href="#b">b</a></td></tr>
      </tbody></table>
    </main>`
})

function focusedRow(): string | undefined {
  return document.activeElement instanceof HTMLElement ? document.activeElement.dataset.row : undefined
}

function pressedIn(target: Element, init: KeyboardEventInit): KeyboardEvent {
  const event = new KeyboardEvent('keydown', { bubbles: true, ...init })
  target.dispatchEvent(event)
  return event
}

test('rows are walked down and up, and no further than the ends', () => {
  expect(moveRow(1)).toBe(true)
  expect(focusedRow()).toBe('a')
  moveRow(1)
  expect(focusedRow()).toBe('b')
  expect(moveRow(1)).toBe(false)
  expect(focusedRow()).toBe('b')
  moveRow(-1)
  expect(focusedRow()).toBe('a')
})

test('the link of the focused row is followed, and nothing without one', () => {
  expect(openRow()).toBe(false)
  moveRow(1)
  const followed = vi.fn()
  document.querySelector('[data-row="a"] a')?.addEventListener('click', followed)
  expect(openRow()).toBe(true)
  expect(followed).toHaveBeenCalledOnce()
})

test.each([
  ['the link that names the row', '<th><a href="#x">a</a></th><td><a href="#y" id="other">b</a></td>', '#x'],
  ['another link, where nothing names it by one', '<th>a</th><td><button>Revoke</button></td><td><a href="#x">b</a></td>', '#x'],
  ['what unfolds it, and nothing that is folded up', '<th>a</th><td><details><summary></summary><a href="#y">b</a><button>Copy</button></details></td>', 'SUMMARY'],
  ['the button that unfolds it', '<th>a</th><td><button aria-expanded="false"></button></td>', 'BUTTON'],
  ['no button that acts', '<th>a</th><td><button>Restore…</button></td>', null],
  ['no download', '<th>a</th><td><a href="#y" download>Manifest</a></td>', null],
])('Enter on a row opens %s', (_, cells, opened) => {
  document.body.innerHTML = `<main><table><tbody><tr data-row="a" tabindex="-1">${cells}</tr></tbody></table></main>`
  const clicked: string[] = []
  document.addEventListener(
    'click',
    (event) => {
      event.preventDefault()
      if (event.target instanceof Element) clicked.push(event.target.getAttribute('href') ?? event.target.tagName)
    },
    { once: true },
  )
  moveRow(1)
  expect(openRow()).toBe(opened !== null)
  expect(clicked).toEqual(opened === null ? [] : [opened])
})

test('the search field is focused', () => {
  expect(focusSearch()).toBe(true)
  expect(document.activeElement?.tagName).toBe('INPUT')
})

test('keys typed into a field, chords, and keys beside an open dialog are not for the page', () => {
  const [field = document.body] = document.querySelectorAll('input')
  expect(isForPage(pressedIn(field, { key: 'j' }))).toBe(false)
  expect(isForPage(pressedIn(document.body, { key: 'j', ctrlKey: true }))).toBe(false)
  expect(isForPage(pressedIn(document.body, { key: 'j' }))).toBe(true)
  document.body.insertAdjacentHTML('beforeend', '<dialog open></dialog>')
  expect(isForPage(pressedIn(document.body, { key: 'j' }))).toBe(false)
})

test('single keys stay off once they are turned off', () => {
  expect(singleKeysOn()).toBe(true)
  turnSingleKeys(false)
  expect(singleKeysOn()).toBe(false)
  turnSingleKeys(true)
  expect(singleKeysOn()).toBe(true)
})
