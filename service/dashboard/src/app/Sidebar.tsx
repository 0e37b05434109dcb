import { Link, useRouterState } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import { Button } from '../components/Button'
import { Icon } from '../components/Icon'
import styles from './Sidebar.module.css'
import { SignedInCard } from './SignedInCard'
import { ThemeSwitch } from './ThemeSwitch'

const GROUPS = [
  {
    name: 'Checkpoints',
    links: [
      { to: '/', label: 'Overview' },
      { to: '/runs', label: 'Runs' },
      { to: '/saves', label: 'Saves in progress' },
      { to: '/integrity', label: 'Integrity' },
    ],
  },
  {
    name: 'Administration',
    links: [
      { to: '/projects', label: 'Projects' },
      { to: '/access', label: 'Tokens' },
      { to: '/audit', label: 'Audit log' },
      { to: '/system', label: 'System' },
    ],
  },
] as const

/** Pages whose address is not below that of the list that leads to them. */
const BELOW: readonly (readonly [prefix: string, to: string])[] = [
  ['/checkpoints/', '/runs'],
  ['/retention/', '/projects'],
]

/** Where one can go, who is signed in, and the theme; on a phone a bar whose menu unfolds. */
export function Sidebar({ onHelp }: { onHelp: () => void }): ReactNode {
  const path = useRouterState({ select: (state) => state.location.pathname })
  // The menu is open for the page it was opened on: a change of page folds it.
  const [openOn, setOpenOn] = useState<string | null>(null)
  const open = openOn === path
  const listed = BELOW.find(([prefix]) => path.startsWith(prefix))?.[1]
  return (
    <header className={styles.sidebar} data-open={open}>
      <div className={styles.bar}>
        <Link to="/" className={styles.brand}>
          <Icon name="stack" /> Shardkeep
        </Link>
        <button
          type="button"
          className={styles.menu}
          aria-expanded={open}
          aria-controls="menu"
          onClick={() => {
            setOpenOn(open ? null : path)
          }}
        >
          <Icon name={open ? 'cross' : 'menu'} /> Menu
        </button>
      </div>
      <div id="menu" className={styles.foldable}>
        <nav aria-label="Pages" className={styles.nav}>
          {GROUPS.map((group) => (
            <div key={group.name}>
              <p className={styles.group} id={`nav-${group.name}`}>
                {group.name}
              </p>
              <ul aria-labelledby={`nav-${group.name}`}>
                {group.links.map(({ to, label }) => (
                  <li key={to}>
                    <Link
                      to={to}
                      className={styles.link}
                      activeOptions={{ exact: to === '/', includeSearch: false }}
                      {...(to === listed ? { 'aria-current': 'true' as const } : {})}
                    >
                      {label}
                    </Link>
                  </li>
                ))}
              </ul>
            </div>
          ))}
        </nav>
        <div className={styles.foot}>
          <SignedInCard />
          <ThemeSwitch />
          <Button kind="quiet" onClick={onHelp}>
            Keyboard <kbd>?</kbd>
          </Button>
        </div>
      </div>
    </header>
  )
}
