import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import type { Message } from '../../api/client'
import { runCheckpointsQuery } from '../../api/run'
import { given } from '../../app/searchParams'
import { Button } from '../../components/Button'
import { DataTable } from '../../components/DataTable'
import { Dialog } from '../../components/Dialog'
import { Empty } from '../../components/Empty'
import { LinkButton } from '../../components/LinkButton'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { TextField } from '../../components/TextField'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import type { ActionDialogProps } from './actionDialog'
import styles from './checkpoint.module.css'

const PAGE = 10
const ID = /^ckp_[0-9a-f]{32}$/

/** Chooses another checkpoint to compare with: one of the run, or any by its id. */
export function CompareDialog({ checkpoint, onClose }: ActionDialogProps): ReactNode {
  const [cursor, setCursor] = useState<string>()
  const { project, run } = checkpoint
  const others = useQuery(
    runCheckpointsQuery({ project, run }, { state: 'committed', limit: PAGE, ...given({ cursor }) }),
  )
  return (
    <Dialog
      title={`Compare step ${count(checkpoint.step)} with`}
      onClose={onClose}
      actions={<Button onClick={onClose}>Cancel</Button>}
    >
      <ById checkpoint={checkpoint.id} onClose={onClose} />
      <Loaded query={others}>
        {({ items, next_cursor }) => (
          <div className={styles.stack}>
            <Others
              rows={items.filter(({ id }) => id !== checkpoint.id)}
              checkpoint={checkpoint}
              isAll={cursor === undefined && next_cursor == null}
            />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
              onCursor={setCursor}
            />
          </div>
        )}
      </Loaded>
    </Dialog>
  )
}

interface OthersProps {
  rows: readonly Message<'CheckpointSummary'>[]
  checkpoint: Message<'CheckpointInfo'>
  /** Whether the list has no other page. */
  isAll: boolean
}

function Others({ rows, checkpoint, isAll }: OthersProps): ReactNode {
  return (
    <DataTable
      caption="Other committed checkpoints of the run"
      rows={rows}
      rowKey={({ id }) => id}
      empty={
        isAll ? (
          <Empty
            title="The run has no other committed checkpoint"
            command={`shardkeep save-now ${checkpoint.project}/${checkpoint.run}`}
          >
            A checkpoint of another run can be compared with by its id. Training is asked for another one of this run with
          </Empty>
        ) : (
          <Empty title="There is none on this page but this one" />
        )
      }
      columns={[
        {
          id: 'step',
          header: 'Step',
          cell: ({ id, step }) => `${count(step)}${id === checkpoint.parent_id ? ', its parent' : ''}`,
        },
        { id: 'attempt', header: 'Attempt', align: 'end', cell: ({ attempt_number }) => attempt_number },
        { id: 'when', header: 'Committed', cell: ({ committed_at }) => <When time={committed_at} /> },
        {
          id: 'compare',
          header: 'Compare',
          cell: ({ id, step }) => (
            <LinkButton
              to="/checkpoints/$checkpoint/differences/$other"
              params={{ checkpoint: checkpoint.id, other: id }}
              aria-label={`Compare with step ${count(step)}`}
            >
              Compare
            </LinkButton>
          ),
        },
      ]}
    />
  )
}

function ById({ checkpoint, onClose }: { checkpoint: string; onClose: () => void }): ReactNode {
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const other = text.trim()
  const wrong = other !== '' && !ID.test(other) ? 'An id is ckp_ and 32 hexadecimal digits.' : undefined
  return (
    <form
      className={styles.stack}
      onSubmit={(event) => {
        event.preventDefault()
        if (!ID.test(other)) return
        onClose()
        void navigate({ to: '/checkpoints/$checkpoint/differences/$other', params: { checkpoint, other } })
      }}
    >
      <TextField
        label="Id of any checkpoint"
        value={text}
        onChange={setText}
        error={wrong}
        placeholder="ckp_…"
        hint="Or choose one of the run below."
      />
      <div>
        <Button type="submit" reason={other === '' ? 'Write an id first.' : wrong}>
          Compare with this one
        </Button>
      </div>
    </form>
  )
}
