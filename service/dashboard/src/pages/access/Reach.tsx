import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { projectsOf } from '../../api/scopes'
import { counted } from '../../format/numbers'
import { Tag } from '../../components/Tag'
import styles from './access.module.css'

const FIRST = 3

/** What a token sees: everything, some projects, or the one run of a job. */
export function Reach({ token }: { token: Message<'TokenInfo'> }): ReactNode {
  const projects = projectsOf(token)
  if (projects === null) return <span className={styles.whole}>all projects</span>
  if (token.run) {
    return (
      <Tag>
        run {projects[0]}/{token.run}
      </Tag>
    )
  }
  const rest = projects.slice(FIRST)
  return (
    <span className={styles.reach}>
      {projects.slice(0, FIRST).map((name) => (
        <Tag key={name}>{name}</Tag>
      ))}
      {rest.length > 0 && <span title={rest.join(', ')}>and {counted(rest.length, 'more', 'more')}</span>}
    </span>
  )
}
