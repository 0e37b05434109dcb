import { useQuery } from '@tanstack/react-query'
import { createRoute } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { auditQuery } from '../../api/audit'
import { shellRoute } from '../../app/parent'
import { given } from '../../app/searchParams'
import { Guarded } from '../../components/Guarded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { EntriesTable } from './EntriesTable'
import { ExportLink } from './ExportLink'
import { FilterForm } from './FilterForm'
import { auditFilter, auditSearch } from './filters'

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/audit',
  validateSearch: auditSearch,
  component: AuditPage,
})

function AuditPage(): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const entries = useQuery(auditQuery(search))
  const filter = auditFilter({ ...search })
  return (
    <Page title="Audit log" actions={<ExportLink filter={filter} />}>
      <FilterForm
        key={JSON.stringify(filter)}
        filter={filter}
        onFilter={(wanted) => void navigate({ search: wanted })}
      />
      <Guarded query={entries} scope="admin">
        {({ items, next_cursor }) => (
          <>
            <EntriesTable entries={items} filter={filter} />
            <Pager
              nextCursor={next_cursor}
              cursor={search.cursor}
              onCursor={(cursor) => void navigate({ search: given({ ...filter, cursor }) })}
            />
          </>
        )}
      </Guarded>
    </Page>
  )
}
