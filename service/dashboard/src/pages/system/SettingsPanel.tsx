import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { CopyButton } from '../../components/CopyButton'
import { DataTable, type Column } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Panel } from '../../components/Panel'
import { SearchBox } from '../../components/SearchBox'
import { Tag } from '../../components/Tag'
import { matchingSettings, variableOf } from './settings'
import styles from './system.module.css'

type Setting = Message<'SettingInfo'>

const COLUMNS: readonly Column<Setting>[] = [
  {
    id: 'name',
    header: 'Setting',
    wide: true,
    cell: (setting) => (
      <span className={styles.name}>
        <code title={variableOf(setting)}>{setting.name}</code>
        <CopyButton text={variableOf(setting)} label={`variable of ${setting.name}`} />
      </span>
    ),
  },
  {
    id: 'value',
    header: 'Value',
    wide: true,
    cell: ({ value, secret }) =>
      secret ? <Tag>secret, {value}</Tag> : <code className={styles.value}>{value === '' ? '–' : value}</code>,
  },
  { id: 'origin', header: 'From', cell: ({ is_default }) => (is_default ? 'default' : <Tag tone="accent">set</Tag>) },
]

export interface SettingsPanelProps {
  settings: readonly Setting[]
  search: string
  onSearch: (text: string) => void
}

/** The settings that are in force; of secrets only whether they are set. */
export function SettingsPanel({ settings, search, onSearch }: SettingsPanelProps): ReactNode {
  const found = matchingSettings(settings, search)
  return (
    <Panel title={`Settings (${found.length} of ${settings.length})`}>
      <div className={styles.stack}>
        <p className={styles.soft}>
          A setting is the variable <code>SHARDKEEP_SERVICE_</code> and its name in capitals; the button copies it. Of
          secrets only whether they are set is shown.
        </p>
        <div className={styles.search}>
          <SearchBox label="Search settings" value={search} onSearch={onSearch} placeholder="scrub, lease, s3…" />
        </div>
        <DataTable
          caption="Settings"
          columns={COLUMNS}
          rows={found}
          rowKey={({ name }) => name}
          empty={<Empty title="No setting matches" />}
        />
      </div>
    </Panel>
  )
}
