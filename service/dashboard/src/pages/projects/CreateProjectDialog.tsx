import { useState, type ReactNode } from 'react'
import { createProject } from '../../api/projectChanges'
import { PROJECTS_KEY } from '../../api/projects'
import { Button } from '../../components/Button'
import { Dialog } from '../../components/Dialog'
import { TextField } from '../../components/TextField'
import { useAction } from '../../components/useAction'
import { useFaultFocus } from '../../components/useFaultFocus'
import { isName, NAME_RULE } from '../../format/names'
import styles from './projects.module.css'

export function CreateProjectDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [name, setName] = useState('')
  const [faults, setFaults] = useState<{ name?: string }>({})
  const ref = useFaultFocus(faults)
  const create = useAction(createProject, {
    done: ({ name: made }) => `Project ${made} is there.`,
    invalidates: [PROJECTS_KEY],
  })
  const submit = async (): Promise<void> => {
    if (!isName(name)) {
      setFaults({ name: `A name is ${NAME_RULE}.` })
      return
    }
    setFaults({})
    try {
      await create.run(name)
    } catch {
      return // shown by the notice
    }
    onClose()
  }
  return (
    <Dialog title="Create a project" onClose={onClose}>
      <form
        ref={ref}
        noValidate // what is wrong is said beside each field
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault()
          void submit()
        }}
      >
        <TextField
          label="Name"
          value={name}
          onChange={setName}
          error={faults.name}
          required
          hint="The unit of access, deduplication and retention. It stays as it is."
        />
        {create.notice}
        <div className={styles.buttons}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="primary" pending={create.pending}>
            Create
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
