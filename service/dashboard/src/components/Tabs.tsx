import { useEffect, useId, useRef, type KeyboardEvent, type ReactNode } from 'react'
import { classes } from './classes'
import styles from './Tabs.module.css'

export interface TabsProps<Id extends string> {
  label: string
  tabs: readonly { id: Id; label: ReactNode }[]
  /** As the URL has it. */
  selected: Id
  onSelect: (id: Id) => void
  /** The panel of the selected tab. */
  children: ReactNode
}

/** Tabs, whose choice the URL holds. Arrow keys move among them. */
export function Tabs<Id extends string>({ label, tabs, selected, onSelect, children }: TabsProps<Id>): ReactNode {
  const base = useId()
  const list = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (list.current !== null) bringIntoSight(list.current)
  }, [selected])
  const move = (event: KeyboardEvent<HTMLDivElement>): void => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (by === undefined) return
    event.preventDefault()
    const at = tabs.findIndex(({ id }) => id === selected)
    const next = tabs[(at + by + tabs.length) % tabs.length]
    if (next === undefined) return
    onSelect(next.id)
    document.getElementById(`${base}-${next.id}`)?.focus()
  }
  return (
    <div className={styles.tabs}>
      <div ref={list} role="tablist" aria-label={label} tabIndex={-1} className={classes(styles.list, 'fades')} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${base}-${tab.id}`}
            aria-selected={tab.id === selected}
            aria-controls={`${base}-panel`}
            tabIndex={tab.id === selected ? 0 : -1}
            className={styles.tab}
            onClick={() => {
              onSelect(tab.id)
            }}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${base}-panel`} aria-labelledby={`${base}-${selected}`} className={styles.panel}>
        {children}
      </div>
    </div>
  )
}

/** Sideways only: the page stays where it is. */
function bringIntoSight(list: HTMLElement): void {
  const tab = list.querySelector('[aria-selected=true]')?.getBoundingClientRect()
  if (tab === undefined) return
  const shown = list.getBoundingClientRect()
  list.scrollLeft += Math.min(0, tab.left - shown.left) + Math.max(0, tab.right - shown.right)
}
