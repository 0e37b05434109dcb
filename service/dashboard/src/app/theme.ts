const KEY = 'shardkeep.theme'

export type Theme = 'system' | 'light' | 'dark'

/** The theme this browser chose; `system` follows its setting. */
export function chosenTheme(): Theme {
  const stored = read()
  return stored === 'light' || stored === 'dark' ? stored : 'system'
}

export function chooseTheme(theme: Theme): void {
  try {
    if (theme === 'system') localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, theme)
  } catch {
    // Storage is refused: the choice holds until the page is left.
  }
  applyTheme(theme)
}

export function applyTheme(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY)
  } catch {
    return null
  }
}
