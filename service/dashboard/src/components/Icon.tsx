import type { ReactNode } from 'react'

const PATHS = {
  stack: 'M8 2 14.5 5.2 8 8.4 1.5 5.200ZM1.5 8 8 11.2 14.5 8M1.5 10.8 8 14 14.5 10.8',
  menu: 'M2 4h12M2 8h12M2 12h12',
  cross: 'M3.5 3.500l9 9M12.5 3.500l-9 9',
  copy: 'M5.5 5.500h8v8h-8zM3 10.500H2.500v-8h8V3',
  check: 'M3 8.500l3.3 3.300L13 5',
  up: 'M8 13V3.500M4 7.500l4-4 4 4',
  down: 'M8 3v9.500M4 8.500l4 4 4-4',
  search: 'M7 2.500a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.3 10.3 14 14',
  alert: 'M8 2 14.5 13.500h-13ZM8 6.500v3.200M8 11.300v.4',
} as const

/** A small drawing beside words that say the same. */
export function Icon({ name }: { name: keyof typeof PATHS }): ReactNode {
  return (
    <svg viewBox="0 0 16 16" width="1em" height="1em" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinejoin="round" strokeLinecap="round" />
    </svg>
  )
}
