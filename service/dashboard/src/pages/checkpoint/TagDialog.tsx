import { useState, type ReactNode } from 'react'
import { removeTag, setTag } from '../../api/checkpoints'
import { Button } from '../../components/Button'
import { CheckField } from '../../components/CheckField'
import { ConfirmDialog } from '../../components/ConfirmDialog'
import { Icon } from '../../components/Icon'
import { Tag } from '../../components/Tag'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { isName, NAME_RULE } from '../../format/names'
import { CHANGED, type ActionDialogProps } from './PinDialog'
import styles from './checkpoint.module.css'

export function TagDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const [tag, setText] = useState('')
  const [only, setOnly] = useState(false)
  const add = useAction(() => setTag(checkpoint.id, tag, only), { done: `Tagged ${tag}.`, invalidates: CHANGED })
  const wrong = tag !== '' && !isName(tag) ? `A tag has ${NAME_RULE}.` : undefined
  return (
    <ConfirmDialog
      title={`Tag step ${checkpoint.step.toLocaleString('en')}`}
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

export interface TagListProps {
  checkpoint: ActionDialogProps['checkpoint']
  /** Why they cannot be taken away. */
  refused: string | undefined
}

/** The tags, each with a button that takes it away. */
export function TagList({ checkpoint, refused }: TagListProps): ReactNode {
  const take = useAction((tag: string) => removeTag(checkpoint.id, tag), {
    done: (_, tag) => `Took the tag ${tag} away.`,
    invalidates: CHANGED,
  })
  const { tags = [] } = checkpoint
  if (tags.length === 0) return null
  return (
    <>
      <ul className={styles.words} aria-label="Tags">
        {tags.map((tag) => (
          <li key={tag} className={styles.words}>
            <Tag tone="accent">{tag}</Tag>
            <Button
              kind="quiet"
              label={`Take the tag ${tag} away`}
              reason={refused}
              pending={take.pending}
              onClick={() => {
                take.start(tag)
              }}
            >
              <Icon name="cross" />
            </Button>
          </li>
        ))}
      </ul>
      {take.notice}
    </>
  )
}
