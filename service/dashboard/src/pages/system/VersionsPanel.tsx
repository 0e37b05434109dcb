import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { Facts } from '../../components/Facts'
import { Panel } from '../../components/Panel'
import { When } from '../../components/When'

/** What runs, since when, and where it describes itself. */
export function VersionsPanel({ info }: { info: Message<'SystemInfo'> }): ReactNode {
  return (
    <Panel title="Service">
      <Facts
        facts={[
          { name: 'Version', value: info.service_version },
          { name: 'Python', value: info.python_version },
          { name: 'Started', value: <When time={info.started_at} absolute /> },
          { name: 'Clock', value: <When time={info.now} absolute /> },
          { name: 'Metrics', value: <a href="/metrics">/metrics</a> },
          { name: 'API', value: <a href="/v1/openapi.json">/v1/openapi.json</a> },
        ]}
      />
    </Panel>
  )
}
