import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { RETENTION_KEY, setPolicy, type Place } from '../../api/retention'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Panel } from '../../components/Panel'
import { Snippet } from '../../components/Snippet'
import { useAction } from '../../components/useAction'
import { useFaultFocus } from '../../components/useFaultFocus'
import styles from './retention.module.css'
import { RuleFields } from './RuleFields'
import {
  EMPTY_FORM,
  formOf,
  placeText,
  readForm,
  sameRules,
  setCommand,
  type Faults,
  type PolicyForm,
  type RetentionRules,
} from './rules'

export interface EditorPanelProps {
  place: Place
  answer: Message<'RetentionAnswer'>
  /** Rules out of the address, to go on from. */
  tried: RetentionRules | undefined
  onTry: (rules: RetentionRules) => void
}

/** Writes a policy: tried out first, then saved. What a colleague changes meanwhile is told, and never overwritten. */
export function EditorPanel({ place, answer, tried, onTry }: EditorPanelProps): ReactNode {
  const [base, setBase] = useState(answer)
  const [form, setForm] = useState(() => (tried === undefined ? startingForm(answer) : formOf(tried)))
  const [faults, setFaults] = useState<Faults>({})
  const refusal = useRefusal('admin')
  const ref = useFaultFocus(faults)
  const read = readForm(form)
  const touched = JSON.stringify(form) !== JSON.stringify(startingForm(base))
  if (base !== answer && !touched) {
    // Read anew, and nobody has typed yet.
    setBase(answer)
    setForm(startingForm(answer))
  }
  const save = useAction((rules: RetentionRules) => setPolicy(place, base.policy, rules), {
    done: `The policy of ${placeText(place)} is set. The worker applies it at its next interval.`,
    invalidates: [RETENTION_KEY],
  })
  const startOver = (from: Message<'RetentionAnswer'>): void => {
    setBase(from)
    setForm(startingForm(from))
    setFaults({})
    save.reset()
  }
  const checked = (): RetentionRules | undefined => {
    setFaults(read.faults ?? {})
    return read.rules
  }
  const submit = async (): Promise<void> => {
    const rules = checked()
    if (rules === undefined || save.pending) return
    try {
      startOver(await save.run(rules))
    } catch {
      return // shown by the notice
    }
  }
  const saved = base.policy !== null && read.rules !== undefined && sameRules(read.rules, base.policy.rules)
  const command = read.rules === undefined ? undefined : setCommand(place, read.rules)
  return (
    <Panel
      title={base.policy === null ? `Write a policy of ${placeText(place)}` : `Edit the policy of ${placeText(place)}`}
    >
      <form
        ref={ref}
        className={styles.stack}
        onSubmit={(event) => {
          event.preventDefault()
          const rules = checked()
          if (rules !== undefined) onTry(rules)
        }}
      >
        <RuleFields form={form} faults={faults} onChange={setForm} />
        {faults.form !== undefined && (
          <p role="alert" className={styles.fault}>
            {faults.form}
          </p>
        )}
        {save.notice}
        <div className={styles.buttons}>
          <Button type="submit" kind="primary">
            Try these rules
          </Button>
          <Button
            reason={refusal ?? (saved ? 'This policy is set already.' : undefined)}
            pending={save.pending}
            onClick={() => void submit()}
          >
            Save policy
          </Button>
          {touched && (
            <Button
              kind="quiet"
              onClick={() => {
                startOver(answer)
              }}
            >
              Discard edits
            </Button>
          )}
        </div>
        {command !== undefined && (
          <details>
            <summary>The same on the command line</summary>
            <Snippet text={command} label="command" />
          </details>
        )}
      </form>
    </Panel>
  )
}

function startingForm({ in_force: inForce }: Message<'RetentionAnswer'>): PolicyForm {
  return inForce === null ? EMPTY_FORM : formOf(inForce.rules)
}
