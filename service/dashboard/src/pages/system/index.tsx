import { useQuery } from '@tanstack/react-query'
import { createRoute } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'
import { systemQuery } from '../../api/system'
import { shellRoute } from '../../app/parent'
import { given, textParam } from '../../app/searchParams'
import { Guarded } from '../../components/Guarded'
import { Page } from '../../components/Page'
import { DatabasePanel } from './DatabasePanel'
import { SettingsPanel } from './SettingsPanel'
import { StorePanel } from './StorePanel'
import { VersionsPanel } from './VersionsPanel'

export interface SystemSearch {
  /** Part of a setting's name or value. */
  search?: string
}

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/system',
  validateSearch: (raw): SystemSearch => given({ search: textParam(raw.search) }),
  component: SystemPage,
})

function SystemPage(): ReactNode {
  const system = useQuery(systemQuery)
  return (
    <Page title="System">
      <Guarded query={system} scope="admin" reaching="all">
        {(info) => <Parts info={info} />}
      </Guarded>
    </Page>
  )
}

function Parts({ info }: { info: Message<'SystemInfo'> }): ReactNode {
  const { search = '' } = route.useSearch()
  const navigate = route.useNavigate()
  return (
    <>
      <VersionsPanel info={info} />
      <DatabasePanel database={info.database} />
      <StorePanel store={info.store} />
      <SettingsPanel
        settings={info.settings}
        search={search}
        onSearch={(text) => void navigate({ search: given({ search: textParam(text) }), replace: true })}
      />
    </>
  )
}
