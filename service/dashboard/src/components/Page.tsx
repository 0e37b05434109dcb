import { useEffect, type ReactNode } from 'react'
import styles from './Page.module.css'

export interface PageProps {
  title: string
  /** Links to the pages above this one, outermost first. */
  crumbs?: readonly ReactNode[]
  /** Buttons for the whole page. */
  actions?: ReactNode
  children: ReactNode
}

/** One page: its title in the window and as the only h1, which gets the focus after a change of page (see Shell). */
export function Page({ title, crumbs, actions, children }: PageProps): ReactNode {
  useEffect(() => {
    document.title = `${title} · Shardkeep`
  }, [title])
  return (
    <div className={styles.page}>
      <div className={styles.head}>
        <div className={styles.titles}>
          {crumbs !== undefined && (
            <nav aria-label="Breadcrumbs">
              <ol className={styles.crumbs}>
                {crumbs.map((crumb, index) => (
                  // Crumbs have no identity but their place.
                  <li key={index}>{crumb}</li>
                ))}
              </ol>
            </nav>
          )}
          <h1 tabIndex={-1} className={styles.title}>
            {title}
          </h1>
        </div>
        {actions !== undefined && <div className={styles.actions}>{actions}</div>}
      </div>
      {children}
    </div>
  )
}
