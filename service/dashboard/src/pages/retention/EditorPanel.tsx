import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import type { Place } from '../../api/retention'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Panel } from '../../components/Panel'
import { Snippet } from '../../components/Snippet'
import { useFaultFocus } from '../../components/useFaultFocus'
import styles from './retention.module.css'
import { RuleFields } from './RuleFields'
import {
  canonical,
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
import { SavePolicyDialog } from './SavePolicyDialog'

export interface EditorPanelProps {
  place: Place
  answer: Message<'RetentionAnswer'>
  /** Rules out of the address, to go on from. */
  tried: RetentionRules | undefined
  onTry: (rules: RetentionRules) => void
  /** The rules of the address are edited no longer. */
  onDiscard: () => void
}

/** Writes a policy: tried out first, then saved. What a colleague changes meanwhile is told, and never overwritten. */
export function EditorPanel({ place, answer, tried, onTry, onDiscard }: EditorPanelProps): ReactNode {
  const [base, setBase] = useState(answer)
  const [form, setForm] = useState(() => (tried === undefined ? startingForm(answer) : formOf(tried)))
  const [faults, setFaults] = useState<Faults>({})
  const [saving, setSaving] = useState<RetentionRules | null>(null)
  const asked = tried === undefined ? '' : JSON.stringify(canonical(tried))
  const [seen, setSeen] = useState(asked)
  if (seen !== asked) {
    // The address changed (a try, the browser's Back, a link): the fields hold what the dry run beside them is of.
    setSeen(asked)
    setForm(tried === undefined ? startingForm(base) : formOf(tried))
    setFaults({})
  }
  const refusal = useRefusal('admin')
  const ref = useFaultFocus(faults)
  const read = readForm(form)
  const touched = JSON.stringify(form) !== JSON.stringify(startingForm(base))
  if (base !== answer && !touched && seen === asked) {
    // Read anew, and nobody has typed yet.
    setBase(answer)
    setForm(startingForm(answer))
  }
  const startOver = (from: Message<'RetentionAnswer'>): void => {
    setBase(from)
    setForm(startingForm(from))
    setFaults({})
  }
  const checked = (): RetentionRules | undefined => {
    setFaults(read.faults ?? {})
    return read.rules
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
        <div className={styles.buttons}>
          <Button type="submit" kind="primary">
            Try these rules
          </Button>
          <Button
            reason={refusal ?? (saved ? 'This policy is set already.' : undefined)}
            onClick={() => {
              setSaving(checked() ?? null)
            }}
          >
            Save policy…
          </Button>
          {touched && (
            <Button
              kind="quiet"
              onClick={() => {
                startOver(answer)
                onDiscard()
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
      {saving !== null && (
        <SavePolicyDialog
          place={place}
          seen={base.version}
          rules={saving}
          onSaved={startOver}
          onClose={() => {
            setSaving(null)
          }}
        />
      )}
    </Panel>
  )
}

function startingForm({ in_force: inForce }: Message<'RetentionAnswer'>): PolicyForm {
  return inForce === null ? EMPTY_FORM : formOf(inForce.rules)
}
