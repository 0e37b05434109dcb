import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { integrityQuery } from '../../api/integrity'
import { Bytes } from '../../components/Bytes'
import { CoverageMeter } from '../../components/CoverageMeter'
import { Facts } from '../../components/Facts'
import { Loaded } from '../../components/Loaded'
import { Panel } from '../../components/Panel'
import { StateBadge } from '../../components/StateBadge'
import { When } from '../../components/When'
import { counted } from '../../format/numbers'
import styles from './OverviewPage.module.css'

export interface IntegrityPanelProps {
  overview: Message<'OverviewInfo'>
  project: string | undefined
}

/** How much of what is stored was looked at lately, and what was found. */
export function IntegrityPanel({ overview, project }: IntegrityPanelProps): ReactNode {
  const query = useQuery(integrityQuery(project))
  const { open_findings: findings, quarantined_checkpoints: quarantined } = overview
  const found =
    findings === 0 ? (
      <StateBadge state="passed" label="none" />
    ) : (
      <StateBadge state="failed" label={counted(findings, 'open finding')} />
    )
  return (
    <Panel title="Integrity" actions={<Link to="/integrity">Findings</Link>}>
      <div className={styles.stack}>
        <Loaded query={query}>
          {(integrity) => (
            <>
              <CoverageMeter label="Compared with its digest lately" info={integrity} />
              <Facts
                facts={[
                  { name: 'Verified', value: <Bytes value={integrity.verified_bytes} /> },
                  { name: 'Never compared', value: <Bytes value={integrity.declared_bytes} /> },
                  { name: 'Oldest check', value: <When time={integrity.oldest_verified_at} /> },
                  { name: 'Damage', value: found },
                  { name: 'Quarantined', value: counted(quarantined, 'checkpoint') },
                ]}
              />
            </>
          )}
        </Loaded>
      </div>
    </Panel>
  )
}
