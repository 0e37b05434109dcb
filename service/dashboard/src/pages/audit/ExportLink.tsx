import type { ReactNode } from 'react'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { classes } from '../../components/classes'
import buttonStyles from '../../components/Button.module.css'
import { exportAddress, type AuditFilter } from './filters'

/** All entries that the filter finds, as JSON lines: a plain link, so that the browser streams them into a file. */
export function ExportLink({ filter }: { filter: AuditFilter }): ReactNode {
  const refusal = useRefusal('admin')
  if (refusal !== undefined) return <Button reason={refusal}>Export</Button>
  const filtered = Object.keys(filter).length > 0
  return (
    <a className={classes(buttonStyles.button)} href={exportAddress(filter)} download="shardkeep-audit.jsonl">
      {filtered ? 'Export what is found' : 'Export all'}
    </a>
  )
}
