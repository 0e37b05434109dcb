import type { ErrorComponentProps } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import styles from './Bare.module.css'
import { NoSuchPage } from './NoSuchPage'
import { PageFault } from './PageFault'

/** A page without the shell around it: nobody may be signed in. */
function Bare({ children }: { children: ReactNode }): ReactNode {
  return <main className={styles.bare}>{children}</main>
}

export function BareNoSuchPage(): ReactNode {
  return (
    <Bare>
      <NoSuchPage />
    </Bare>
  )
}

export function BareFault(props: ErrorComponentProps): ReactNode {
  return (
    <Bare>
      <PageFault {...props} />
    </Bare>
  )
}
