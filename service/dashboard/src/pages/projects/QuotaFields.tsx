import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { QUOTAS_KEY, setQuota } from '../../api/quotas'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { useFaultFocus } from '../../components/useFaultFocus'
import { isBelowUse, quotaFormOf, readQuotaForm, type QuotaFaults } from './quotaForm'
import styles from './projects.module.css'

/** Both limits of a project. What a colleague changes meanwhile is told, and never overwritten. */
export function QuotaFields({ quota }: { quota: Message<'QuotaInfo'> }): ReactNode {
  const [base, setBase] = useState(quota)
  const [form, setForm] = useState(quotaFormOf(quota))
  const [faults, setFaults] = useState<QuotaFaults>({})
  const refusal = useRefusal('admin', true)
  const ref = useFaultFocus(faults)
  const startOver = (from: Message<'QuotaInfo'>): void => {
    setBase(from)
    setForm(quotaFormOf(from))
    setFaults({})
  }
  const set = useAction(
    async (limits: Message<'SetQuota'>) => {
      startOver(await setQuota(base.project, base.version, limits))
    },
    { done: `The quota of ${quota.project} is set.`, invalidates: [QUOTAS_KEY] },
  )
  const touched = JSON.stringify(form) !== JSON.stringify(quotaFormOf(base))
  if (quota.version > base.version && !touched) startOver(quota) // read anew, and nobody has typed yet
  const { limits } = readQuotaForm(form)
  const submit = (): void => {
    const read = readQuotaForm(form)
    setFaults(read.faults ?? {})
    if (read.limits !== undefined && refusal === undefined) set.start(read.limits)
  }
  return (
    <form
      ref={ref}
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault()
        submit()
      }}
    >
      <div className={styles.fields}>
        <TextField
          label="Most bytes"
          value={form.bytes}
          error={faults.bytes}
          hint="10TB, 512GiB; empty for no limit"
          onChange={(bytes) => {
            setForm((before) => ({ ...before, bytes }))
          }}
        />
        <TextField
          label="Most checkpoints"
          value={form.checkpoints}
          error={faults.checkpoints}
          hint="open, validating and committed ones; empty for no limit"
          onChange={(checkpoints) => {
            setForm((before) => ({ ...before, checkpoints }))
          }}
        />
      </div>
      {limits !== undefined && isBelowUse(limits, quota) && (
        <p role="note" className={styles.warning}>
          Less than is used: what is stored stays, and every further save is refused until enough was collected.
        </p>
      )}
      {set.notice}
      <div className={styles.buttons}>
        <Button type="submit" kind="primary" reason={refusal} pending={set.pending}>
          Set quota
        </Button>
        {touched && (
          <Button
            kind="quiet"
            onClick={() => {
              startOver(quota)
            }}
          >
            Discard edits
          </Button>
        )}
      </div>
    </form>
  )
}
