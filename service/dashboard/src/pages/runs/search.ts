import type { RunsFilter } from '../../api/runs'
import { given, oneOfParam, textParam } from '../../app/searchParams'

export const STATES = ['new', 'saving', 'idle'] as const
const SORTS = ['name', 'created', 'last_step', 'last_committed', 'stored_bytes'] as const
const ORDERS = ['asc', 'desc'] as const
export const PAGE_SIZE = 50

/** What the address says about the list of runs. */
export interface RunsSearch {
  tab?: 'deleted'
  project?: string
  search?: string
  state?: (typeof STATES)[number]
  sort?: (typeof SORTS)[number]
  order?: (typeof ORDERS)[number]
  cursor?: string
}

/** What the address says, without what nobody can mean. */
export function readSearch(raw: Record<string, unknown>): RunsSearch {
  return given({
    tab: oneOfParam(raw.tab, ['deleted'] as const),
    project: textParam(raw.project),
    search: textParam(raw.search),
    state: oneOfParam(raw.state, STATES),
    sort: oneOfParam(raw.sort, SORTS),
    order: oneOfParam(raw.order, ORDERS),
    cursor: textParam(raw.cursor),
  })
}

/** The address after a change; another filter or order begins at the first page. */
export function changed(search: RunsSearch, change: { [Name in keyof RunsSearch]: RunsSearch[Name] | undefined }): RunsSearch {
  return given({ ...search, cursor: undefined, ...change })
}

/** The column and direction that the list is sorted by. */
export function sortOf({ sort = 'last_committed', order = 'desc' }: RunsSearch): { by: string; order: 'asc' | 'desc' } {
  return { by: sort, order }
}

/** The order asked for by a column's header. */
export function sortChange({ by, order }: { by: string; order: 'asc' | 'desc' }): Pick<RunsSearch, 'sort' | 'order'> {
  return given({ sort: oneOfParam(by, SORTS), order })
}

/** The same as the request for one page. */
export function filterOf(search: RunsSearch): RunsFilter {
  const { tab, project, state, cursor, search: text = '', sort = 'last_committed', order = 'desc' } = search
  const wanted = tab === 'deleted' ? 'deleted' : state
  return { ...given({ project, state: wanted, cursor }), search: text, sort, order, limit: PAGE_SIZE }
}

/** Whether anything narrows the list. */
export function isFiltered({ project, search, state }: RunsSearch): boolean {
  return project !== undefined || search !== undefined || state !== undefined
}
