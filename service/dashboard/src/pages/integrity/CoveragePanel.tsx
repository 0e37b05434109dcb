import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Bytes } from '../../components/Bytes'
import { CoverageMeter } from '../../components/CoverageMeter'
import { Panel } from '../../components/Panel'
import { Stat, Stats } from '../../components/Stat'
import { When } from '../../components/When'
import { count } from '../../format/numbers'
import styles from './integrity.module.css'

export interface CoveragePanelProps {
  info: Message<'IntegrityInfo'>
  /** Checkpoints that are damaged; null where it is not known yet. */
  quarantined: number | null
}

/** How much of what is stored was read again and compared with its digest. */
export function CoveragePanel({ info, quarantined }: CoveragePanelProps): ReactNode {
  const { stored_bytes: stored, verified_bytes: verified, declared_bytes: declared } = info
  return (
    <Panel title="Scrub coverage">
      <div className={styles.stack}>
        <CoverageMeter label="Verified within the scrub's interval, of what is stored" info={info} />
        <Stats>
          <Stat name="Stored" value={<Bytes value={stored} />} note="each chunk once, without damaged ones" />
          <Stat name="Verified" value={<Bytes value={verified} />} note="compared with its digest lately" />
          <Stat
            name="Only declared"
            value={<Bytes value={declared} />}
            note="the store vouched for size and checksum"
          />
          <Stat name="Oldest verification" value={<When time={info.oldest_verified_at} />} />
          <Stat name="Open findings" value={count(info.open_findings)} />
          <Stat name="Quarantined checkpoints" value={quarantined === null ? '–' : count(quarantined)} />
        </Stats>
      </div>
    </Panel>
  )
}
