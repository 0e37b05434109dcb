import type { ReactNode } from 'react'
import { Empty } from '../../components/Empty'
import { LinkButton } from '../../components/LinkButton'
import { isFiltered, type RunsSearch } from './search'

/** Why there is nothing in the list, and what would be. */
export function NoRuns({ search }: { search: RunsSearch }): ReactNode {
  if (isFiltered(search)) {
    return (
      <Empty title="No run matches the filters">
        <LinkButton to="/runs" search={search.tab === undefined ? {} : { tab: search.tab }}>
          Clear the filters
        </LinkButton>
      </Empty>
    )
  }
  if (search.tab === 'deleted') {
    return (
      <Empty title="No deleted runs" command="shardkeep ls my-project --deleted">
        A run that is deleted stays here until it is purged, and can be restored. The same on the command line:
      </Empty>
    )
  }
  return (
    <Empty title="No runs yet" command="shardkeep push model.safetensors my-project/my-run --step 0">
      Training makes its run with the first save. A checkpoint from disk makes one too:
    </Empty>
  )
}
