import { useQuery } from '@tanstack/react-query'
import { createRoute } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import { tokensQuery } from '../../api/tokens'
import { shellRoute } from '../../app/parent'
import { flagParam, given, textParam } from '../../app/searchParams'
import { useRefusal } from '../../app/signedIn'
import { Button } from '../../components/Button'
import { Guarded } from '../../components/Guarded'
import { Page } from '../../components/Page'
import { Pager } from '../../components/Pager'
import { NewTokenDialog } from './NewTokenDialog'
import { TokensFilter } from './TokensFilter'
import { TokensTable } from './TokensTable'

export interface AccessSearch {
  project?: string
  /** Only those that this token minted for jobs. */
  parent?: string
  /** Also those that cannot be used any more. */
  all?: true
  cursor?: string
}

export const route = createRoute({
  getParentRoute: () => shellRoute,
  path: '/access',
  validateSearch: (raw): AccessSearch =>
    given({
      project: textParam(raw.project),
      parent: textParam(raw.parent),
      all: flagParam(raw.all),
      cursor: textParam(raw.cursor),
    }),
  component: AccessPage,
})

function AccessPage(): ReactNode {
  const [making, setMaking] = useState(false)
  const refusal = useRefusal('write')
  const { cursor, ...filter } = route.useSearch()
  const { all, ...narrowed } = filter
  const navigate = route.useNavigate()
  const tokens = useQuery(tokensQuery(given({ ...narrowed, living: all !== true, cursor })))
  const make = (
    <Button
      kind="primary"
      reason={refusal}
      onClick={() => {
        setMaking(true)
      }}
    >
      Create token
    </Button>
  )
  return (
    <Page title="Tokens" actions={make}>
      <TokensFilter filter={filter} onFilter={(next) => void navigate({ search: next })} />
      <Guarded query={tokens} scope="admin">
        {({ items, next_cursor }) => (
          <>
            <TokensTable tokens={items} />
            <Pager
              nextCursor={next_cursor}
              cursor={cursor}
              onCursor={(next) => void navigate({ search: given({ ...filter, cursor: next }) })}
            />
          </>
        )}
      </Guarded>
      {making && (
        <NewTokenDialog
          onClose={() => {
            setMaking(false)
          }}
        />
      )}
    </Page>
  )
}
