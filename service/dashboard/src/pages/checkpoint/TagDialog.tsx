import { useState, type ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import { setTag } from '../../api/checkpoints'
import { CheckField } from '../../components/CheckField'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { isName, NAME_RULE } from '../../format/names'
import { count } from '../../format/numbers'
import type { ActionDialogProps } from './actionDialog'

export function TagDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const [tag, setText] = useState('')
  const [only, setOnly] = useState(false)
  const add = useAction(() => setTag(checkpoint.id, tag, only), { done: `Tagged ${tag}.`, invalidates: CHECKPOINT_CHANGED })
  const wrong = tag !== '' && !isName(tag) ? `A tag has ${NAME_RULE}.` : undefined
  return (
    <ConfirmDialog
      title={`Tag step ${count(checkpoint.step)}`}
      confirmLabel="Tag"
      kind="primary"
      reason={tag === '' ? 'Write a tag first.' : wrong}
      onConfirm={() => add.run()}
      onClose={onClose}
    >
      <p>People and retention find a checkpoint by its tags.</p>
      <TextField label="Tag" value={tag} onChange={setText} error={wrong} placeholder="best" />
      <CheckField
        label="Take the tag from the run's other checkpoints"
        checked={only}
        onChange={setOnly}
      />
    </ConfirmDialog>
  )
}
