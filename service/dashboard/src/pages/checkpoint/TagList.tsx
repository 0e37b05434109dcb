import type { ReactNode } from 'react'
import { CHECKPOINT_CHANGED } from '../../api/changes'
import { removeTag } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { Button } from '../../components/Button'
import { Icon } from '../../components/Icon'
import { Tag } from '../../components/Tag'
import { useAction } from '../../components/useAction'
import styles from './checkpoint.module.css'

export interface TagListProps {
  checkpoint: Message<'CheckpointInfo'>
  /** Why they cannot be taken away. */
  refused: string | undefined
}

/** The tags, each with a button that takes it away. */
export function TagList({ checkpoint, refused }: TagListProps): ReactNode {
  const take = useAction((tag: string) => removeTag(checkpoint.id, tag), {
    done: (_, tag) => `Took the tag ${tag} away.`,
    invalidates: CHECKPOINT_CHANGED,
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
