import { Outlet, useRouter } from '@tanstack/react-router'
import { useCallback, useEffect, useState, type ReactNode } from 'react'
import { Announcer } from '../components/Announcer'
import { KeyboardHelp } from './KeyboardHelp'
import { Sidebar } from './Sidebar'
import styles from './Shell.module.css'
import { useKeyboard } from './useKeyboard'

/** What surrounds every page of somebody who is signed in. */
export function Shell(): ReactNode {
  const [helping, setHelping] = useState(false)
  const showHelp = useCallback(() => {
    setHelping(true)
  }, [])
  useKeyboard(showHelp)
  useHeadingFocus()
  return (
    <Announcer>
      <a className={styles.skip} href="#content" onClick={skipToContent}>
        Skip to the content
      </a>
      <div className={styles.shell}>
        <Sidebar onHelp={showHelp} />
        <main id="content" tabIndex={-1} className={styles.main}>
          <Outlet />
        </main>
      </div>
      {helping && (
        <KeyboardHelp
          onClose={() => {
            setHelping(false)
          }}
        />
      )}
    </Announcer>
  )
}

function skipToContent(event: React.MouseEvent): void {
  event.preventDefault()
  document.getElementById('content')?.focus()
}

/** After a change of page the focus goes to its heading, so that it is read out and Tab starts there. */
function useHeadingFocus(): void {
  const router = useRouter()
  useEffect(
    () =>
      router.subscribe('onRendered', ({ fromLocation, pathChanged }) => {
        if (fromLocation !== undefined && pathChanged) document.querySelector<HTMLElement>('main h1')?.focus()
      }),
    [router],
  )
}
