import type { ReactNode } from 'react'
import { SelectField } from '../../components/SelectField'
import { TextField } from '../../components/TextField'
import { SCOPES, type TokenFaults, type TokenForm } from './newToken'

export interface NewTokenFieldsProps {
  form: TokenForm
  faults: TokenFaults
  onChange: (fields: Partial<TokenForm>) => void
  /** Whether who asks may make other tokens than those for jobs. */
  administers: boolean
}

/** What a new token is to be. */
export function NewTokenFields({ form, faults, onChange, administers }: NewTokenFieldsProps): ReactNode {
  const job = form.kind === 'job'
  const scopes = job ? SCOPES.filter(({ scope }) => scope === 'read' || scope === 'write') : SCOPES
  return (
    <>
      <SelectField
        label="For"
        value={form.kind}
        disabled={!administers}
        options={[
          { value: 'person', label: 'a person or a service' },
          { value: 'job', label: 'the jobs of one run' },
        ]}
        onChange={(kind) => {
          onChange(kind === 'job' ? { kind, scope: 'write', expiresIn: '1d' } : { kind, expiresIn: '90d' })
        }}
        hint={administers ? undefined : 'Only a token of scope admin makes others than those for jobs.'}
      />
      <TextField
        label="Name"
        value={form.name}
        error={faults.name}
        required
        hint="Who or what will hold it; the audit log shows it."
        onChange={(name) => {
          onChange({ name })
        }}
      />
      {job && (
        <TextField
          label="Run"
          value={form.run}
          error={faults.run}
          required
          placeholder="project/run"
          hint="The only run it may touch."
          onChange={(run) => {
            onChange({ run })
          }}
        />
      )}
      <SelectField
        label="Scope"
        value={form.scope}
        options={scopes.map(({ scope, may }) => ({ value: scope, label: `${scope}: ${may}` }))}
        onChange={(scope) => {
          onChange({ scope })
        }}
      />
      {!job && (
        <TextField
          label="Projects"
          value={form.projects}
          error={faults.projects}
          hint="Names between blanks. Others do not exist for it. Empty: all that your own token sees."
          onChange={(projects) => {
            onChange({ projects })
          }}
        />
      )}
      <TextField
        label="Expires in"
        value={form.expiresIn}
        error={faults.expiresIn}
        hint={
          job ? '12h or 1d; at most what the service allows jobs.' : '90d or 12h. Empty: as late as your own token.'
        }
        onChange={(expiresIn) => {
          onChange({ expiresIn })
        }}
      />
    </>
  )
}
