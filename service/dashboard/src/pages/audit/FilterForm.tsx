import { useState, type ReactNode } from 'react'
import { Button } from '../../components/Button'
import { TextField } from '../../components/TextField'
import { Toolbar } from '../../components/Toolbar'
import { ACTIONS } from './actions'
import styles from './audit.module.css'
import { auditFilter, localFieldText, momentOfField, type AuditFilter } from './filters'

export interface FilterFormProps {
  filter: AuditFilter
  onFilter: (filter: AuditFilter) => void
}

/** What the log is narrowed to: it takes effect with Enter or the button. */
export function FilterForm({ filter, onFilter }: FilterFormProps): ReactNode {
  const [draft, setDraft] = useState<AuditFilter>(filter)
  const [since, setSince] = useState(localFieldText(filter.since))
  const [until, setUntil] = useState(localFieldText(filter.until))
  const put = (name: keyof AuditFilter) => (value: string) => {
    setDraft((before) => ({ ...before, [name]: value }))
  }
  return (
    <form
      className={styles.filter}
      onSubmit={(event) => {
        event.preventDefault()
        onFilter(auditFilter({ ...draft, since: momentOfField(since), until: momentOfField(until) }))
      }}
    >
      <Toolbar label="Filter of the audit log">
        <TextField
          label="Action"
          value={draft.action ?? ''}
          onChange={put('action')}
          suggestions={ACTIONS}
          placeholder="token or token.create"
        />
        <TextField
          label="Who"
          value={draft.actor ?? ''}
          onChange={put('actor')}
          placeholder="tok_…, worker, operator"
        />
        <TextField label="Project" value={draft.project ?? ''} onChange={put('project')} />
        <TextField
          label="On what"
          value={draft.target ?? ''}
          onChange={put('target')}
          placeholder="ckp_…, run_…, tok_…"
        />
        <TextField label="Since" type="datetime-local" step={1} value={since} onChange={setSince} />
        <TextField label="Until" type="datetime-local" step={1} value={until} onChange={setUntil} />
      </Toolbar>
      <div className={styles.buttons}>
        <Button type="submit" kind="primary">
          Filter
        </Button>
        {Object.keys(filter).length > 0 && (
          <Button
            onClick={() => {
              onFilter({})
            }}
          >
            Show everything
          </Button>
        )}
      </div>
    </form>
  )
}
