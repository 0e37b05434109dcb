import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { quotaQuery } from '../../api/quotas'
import { Button } from '../../components/Button'
import { Loaded } from '../../components/Loaded'
import { Meter } from '../../components/Meter'
import { Panel } from '../../components/Panel'
import { humanBytes } from '../../format/bytes'
import { count } from '../../format/numbers'
import styles from './projects.module.css'
import { QuotaFields } from './QuotaFields'

const FULL_FROM = 0.9

export interface QuotaPanelProps {
  project: string
  onClose: () => void
}

/** What a project uses of what it may use, and the limits to be set. */
export function QuotaPanel({ project, onClose }: QuotaPanelProps): ReactNode {
  const quota = useQuery(quotaQuery(project))
  return (
    <Panel
      title={`Quota of ${project}`}
      actions={
        <Button kind="quiet" onClick={onClose}>
          Close
        </Button>
      }
    >
      <Loaded query={quota}>
        {(info) => (
          <div className={styles.quota}>
            <Use label="Bytes stored" used={info.used_bytes} most={info.max_bytes} written={humanBytes} />
            <Use label="Checkpoints" used={info.used_checkpoints} most={info.max_checkpoints} written={count} />
            <QuotaFields key={info.project} quota={info} />
          </div>
        )}
      </Loaded>
    </Panel>
  )
}

interface UseProps {
  label: string
  used: number
  most: number | null
  written: (value: number) => string
}

function Use({ label, used, most, written }: UseProps): ReactNode {
  if (most === null) {
    return (
      <p className={styles.unlimited}>
        <span>{label}</span>
        <span>{written(used)}, no limit</span>
      </p>
    )
  }
  // A limit of nothing is full from the start.
  const [value, max] = most === 0 ? [1, 1] : [used, most]
  return (
    <Meter label={label} value={value} max={max} text={`${written(used)} of ${written(most)}`} warnAt={FULL_FROM} />
  )
}
