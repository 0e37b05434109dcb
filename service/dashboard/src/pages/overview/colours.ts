import { useSyncExternalStore } from 'react'

/** The theme's colours for what is drawn on a canvas, where style sheets do not reach. */
export interface Colours {
  soft: string
  line: string
  accent: string
  accentSoft: string
}

let known: Colours | undefined

/** The colours, which follow the theme as it is chosen here or in the system. */
export function useColours(): Colours {
  return useSyncExternalStore(watch, current)
}

function watch(changed: () => void): () => void {
  const look = (): void => {
    known = undefined
    changed()
  }
  const chosen = new MutationObserver(look)
  chosen.observe(document.documentElement, { attributeFilter: ['data-theme'] })
  const system = matchMedia('(prefers-color-scheme: dark)')
  system.addEventListener('change', look)
  return () => {
    chosen.disconnect()
    system.removeEventListener('change', look)
    known = undefined
  }
}

function current(): Colours {
  known ??= read(getComputedStyle(document.documentElement))
  return known
}

function read(style: CSSStyleDeclaration): Colours {
  const colour = (name: string): string => style.getPropertyValue(name).trim()
  return {
    soft: colour('--text-soft'),
    line: colour('--line'),
    accent: colour('--accent'),
    accentSoft: colour('--accent-soft'),
  }
}
