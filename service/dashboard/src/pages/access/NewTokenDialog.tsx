import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { createToken, mintJobToken, TOKENS_KEY } from '../../api/tokens'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Dialog } from '../../components/Dialog'
import { useAction } from '../../components/useAction'
import { useFaultFocus } from '../../components/useFaultFocus'
import styles from './access.module.css'
import { NEW_TOKEN, newTokenId, readTokenForm, type TokenFaults, type TokenForm, type TokenRequest } from './newToken'
import { NewTokenFields } from './NewTokenFields'
import { ShownOnce } from './ShownOnce'

/** Makes a token and shows its text. The text lives in this component only and is gone with it: no cache, no storage. */
export function NewTokenDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [made, setMade] = useState<Message<'NewToken'> | null>(null)
  return made === null ? <Form onMade={setMade} onClose={onClose} /> : <ShownOnce made={made} onClose={onClose} />
}

interface FormProps {
  onMade: (made: Message<'NewToken'>) => void
  onClose: () => void
}

function Form({ onMade, onClose }: FormProps): ReactNode {
  const administers = useRefusal('admin') === undefined
  const [form, setForm] = useState<TokenForm>(administers ? NEW_TOKEN : { ...NEW_TOKEN, kind: 'job', expiresIn: '1d' })
  // The same wish under the same id: repeated after a lost answer it makes no second token.
  const [id, setId] = useState(newTokenId)
  const [faults, setFaults] = useState<TokenFaults>({})
  const ref = useFaultFocus(faults)
  const make = useAction(
    async (request: TokenRequest): Promise<void> => {
      onMade(await (request.kind === 'job' ? mintJobToken(request.body) : createToken(request.body)))
    },
    { done: 'The token is made.', invalidates: [TOKENS_KEY] },
  )
  const change = (fields: Partial<TokenForm>): void => {
    setForm((before) => ({ ...before, ...fields }))
    setId(newTokenId())
  }
  const submit = (): void => {
    const read = readTokenForm(form, id)
    setFaults(read.faults ?? {})
    if (read.request !== undefined) make.start(read.request)
  }
  return (
    <Dialog title="Create a token" onClose={onClose}>
      <form
        ref={ref}
        noValidate // what is wrong is said beside each field
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault()
          submit()
        }}
      >
        <NewTokenFields form={form} faults={faults} onChange={change} administers={administers} />
        {make.notice}
        <div className={styles.buttons}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="primary" pending={make.pending}>
            Create
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
