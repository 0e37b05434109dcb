/** Keys of the dashboard. Single keys can be turned off (WCAG 2.1.4), since speech input may type them by accident. */

const KEY = 'shardkeep.single-keys'

export interface Shortcut {
  keys: string
  does: string
}

export const PLACES: readonly { key: string; to: Place; name: string }[] = [
  { key: 'o', to: '/', name: 'overview' },
  { key: 'r', to: '/runs', name: 'runs' },
  { key: 's', to: '/saves', name: 'saves in progress' },
  { key: 'i', to: '/integrity', name: 'integrity' },
  { key: 'p', to: '/projects', name: 'projects' },
  { key: 't', to: '/access', name: 'tokens' },
  { key: 'a', to: '/audit', name: 'audit log' },
  { key: 'y', to: '/system', name: 'system' },
]

export type Place = '/' | '/runs' | '/saves' | '/integrity' | '/projects' | '/access' | '/audit' | '/system'

export const SHORTCUTS: readonly Shortcut[] = [
  { keys: '/', does: 'Search this page’s list' },
  { keys: 'j', does: 'Next row' },
  { keys: 'k', does: 'Row before' },
  { keys: 'Enter', does: 'Open the row' },
  { keys: 'Esc', does: 'Close the dialog' },
  { keys: '?', does: 'Show these keys' },
  ...PLACES.map(({ key, name }) => ({ keys: `g ${key}`, does: `Go to ${name}` })),
]

export function singleKeysOn(): boolean {
  try {
    return localStorage.getItem(KEY) !== 'off'
  } catch {
    return true
  }
}

export function turnSingleKeys(on: boolean): void {
  try {
    if (on) localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, 'off')
  } catch {
    // Storage is refused: the keys stay as they are.
  }
}

/** Whether a key that was pressed is meant for the page: not typed into a field, not part of a chord, no dialog open. */
export function isForPage(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return false
  if (document.querySelector('dialog[open]') !== null) return false
  const target = event.target
  return !(target instanceof HTMLElement && target.closest('input, select, textarea, [contenteditable]') !== null)
}

export function focusSearch(): boolean {
  const box = document.querySelector<HTMLInputElement>('main input[type="search"]')
  box?.focus()
  box?.select()
  return box !== null
}

/** Moves the focus by one row in the table that has it, else in the first one of the page. */
export function moveRow(by: 1 | -1): boolean {
  const current = document.activeElement?.closest<HTMLElement>('[data-row]') ?? null
  const table = current?.closest('table') ?? document.querySelector('main table:has([data-row])')
  const rows = Array.from(table?.querySelectorAll<HTMLElement>('[data-row]') ?? [])
  const at = current === null ? (by === 1 ? -1 : rows.length) : rows.indexOf(current)
  const next = rows[at + by]
  next?.focus()
  next?.scrollIntoView({ block: 'nearest' })
  return next !== undefined
}

/** What opens a row, the first that is there: the link that names it, any other, or what unfolds it. Never what changes something. */
const OPENERS = ['th a[href]:not([download])', 'a[href]:not([download])', 'summary', 'button[aria-expanded]'] as const

/** Opens the row that has the focus itself. What is folded up in it does not lead anywhere yet. */
export function openRow(): boolean {
  const row = document.activeElement
  if (!(row instanceof HTMLElement) || row.dataset.row === undefined) return false
  const found = OPENERS.flatMap((opener) => Array.from(row.querySelectorAll<HTMLElement>(opener)))
  const opener = found.find((one) => one.matches('summary') || one.closest('details:not([open])') === null)
  opener?.click()
  return opener !== undefined
}
