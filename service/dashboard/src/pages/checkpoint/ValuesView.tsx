import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { valuesQuery } from '../../api/checkpoints'
import type { Message } from '../../api/client'
import { given } from '../../app/searchParams'
import { Button } from '../../components/Button'
import { Bytes } from '../../components/Bytes'
import { DataTable } from '../../components/DataTable'
import { Empty } from '../../components/Empty'
import { Loaded } from '../../components/Loaded'
import { Pager } from '../../components/Pager'
import { SearchBox } from '../../components/SearchBox'
import { SelectField } from '../../components/SelectField'
import { Toolbar } from '../../components/Toolbar'
import type { ValueKind } from './search'
import type { ViewProps } from './views'
import styles from './checkpoint.module.css'

type Value = Message<'ValueInfo'>

const PAGE = 50

const KINDS: Record<ValueKind, string> = {
  random: 'State of random generators',
  position: 'Position in the data',
  value: 'Other values',
}

/** What is kept beside tensors: random state and data position first, then whatever else training kept. */
export function ValuesView({ checkpoint, search, onChange }: ViewProps): ReactNode {
  const { kind } = search
  return (
    <div className={styles.stack}>
      <Toolbar label="Filter of the values">
        <SearchBox
          label="Search values"
          value={search.search ?? ''}
          placeholder="any part of a name"
          onSearch={(text) => {
            onChange({ search: text || undefined, cursor: undefined })
          }}
        />
        <SelectField
          label="Kind"
          value={kind ?? ''}
          options={[
            { value: '', label: 'Any' },
            ...(Object.keys(KINDS) as ValueKind[]).map((value) => ({ value, label: KINDS[value] })),
          ]}
          onChange={(chosen) => {
            onChange({ kind: chosen === '' ? undefined : chosen, cursor: undefined })
          }}
        />
      </Toolbar>
      {kind === undefined && search.cursor === undefined && (
        <>
          <FirstOfKind kind="random" checkpoint={checkpoint.id} search={search.search} onMore={onChange} />
          <FirstOfKind kind="position" checkpoint={checkpoint.id} search={search.search} onMore={onChange} />
        </>
      )}
      <ListOfKind kind={kind ?? 'value'} checkpoint={checkpoint.id} search={search} onChange={onChange} />
    </div>
  )
}

interface FirstOfKindProps {
  kind: ValueKind
  checkpoint: string
  search: string | undefined
  onMore: ViewProps['onChange']
}

const FIRST = 10
/** What is longer is folded. */
const SHORT = 160

/** The first few values of a kind, and the way to the rest. */
function FirstOfKind({ kind, checkpoint, search, onMore }: FirstOfKindProps): ReactNode {
  const values = useQuery(valuesQuery(checkpoint, { kind, limit: FIRST, ...given({ search }) }))
  return (
    <section className={styles.stack}>
      <h2>{KINDS[kind]}</h2>
      <Loaded query={values}>
        {({ items, next_cursor }) => (
          <>
            <ValuesTable kind={kind} values={items} more={next_cursor !== null && next_cursor !== undefined} />
            {next_cursor !== null && next_cursor !== undefined && (
              <div>
                <Button
                  onClick={() => {
                    onMore({ kind, cursor: undefined })
                  }}
                >
                  Show all of this kind
                </Button>
              </div>
            )}
          </>
        )}
      </Loaded>
    </section>
  )
}

interface ListOfKindProps {
  kind: ValueKind
  checkpoint: string
  search: ViewProps['search']
  onChange: ViewProps['onChange']
}

function ListOfKind({ kind, checkpoint, search, onChange }: ListOfKindProps): ReactNode {
  const asked = given({ search: search.search, cursor: search.cursor })
  const values = useQuery(valuesQuery(checkpoint, { kind, limit: PAGE, ...asked }))
  return (
    <section className={styles.stack}>
      <h2>{KINDS[kind]}</h2>
      <Loaded query={values}>
        {({ items, next_cursor }) => (
          <>
            <ValuesTable kind={kind} values={items} more={next_cursor !== null && next_cursor !== undefined} />
            <Pager
              nextCursor={next_cursor}
              cursor={search.cursor}
              onCursor={(cursor) => {
                onChange(cursor === undefined ? { cursor } : { kind, cursor })
              }}
            />
          </>
        )}
      </Loaded>
    </section>
  )
}

function ValuesTable({ kind, values, more }: { kind: ValueKind; values: readonly Value[]; more: boolean }): ReactNode {
  return (
    <DataTable<Value>
      caption={KINDS[kind]}
      rows={values}
      rowKey={({ name, rank }) => `${rank ?? 'all'}:${name}`}
      empty={<Empty title={more ? 'None so far: the list goes on with further ranks' : 'There is none'} />}
      columns={[
        { id: 'name', header: 'Name', wide: true, cell: ({ name }) => <code className={styles.name}>{name}</code> },
        { id: 'rank', header: 'Rank', cell: ({ rank }) => rank ?? 'all alike' },
        {
          id: 'text',
          header: 'Value',
          wide: true,
          cell: ({ text, cut }) => <ValueText text={cut ? `${text}… (cut)` : text} />,
        },
        { id: 'size', header: 'Size', align: 'end', cell: ({ size_bytes }) => <Bytes value={size_bytes} /> },
      ]}
    />
  )
}

function ValueText({ text }: { text: string }): ReactNode {
  if (text.length <= SHORT) return <code className={styles.text}>{text}</code>
  return (
    <details className={styles.text}>
      <summary>
        <code>{text.slice(0, SHORT)}…</code>
      </summary>
      <code>{text}</code>
    </details>
  )
}
