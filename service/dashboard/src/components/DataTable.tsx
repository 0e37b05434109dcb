import { useId, type ReactNode } from 'react'
import { classes } from './classes'
import styles from './DataTable.module.css'
import { SortHeader, type Sort } from './SortHeader'

export type { Sort } from './SortHeader'

export interface Column<Row> {
  id: string
  header: string
  cell: (row: Row) => ReactNode
  /** What the API calls this order, where it has one. */
  sort?: string
  /** `end` for figures. */
  align?: 'end'
  /** Long texts, which keep room to be read in where the table is narrow. */
  wide?: boolean
  /** The column that names the row: its cell is the row's header. The first one, unless another says so. */
  names?: boolean
}

export interface DataTableProps<Row> {
  caption: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  rowKey: (row: Row) => string
  sort?: Sort
  onSort?: (sort: Sort) => void
  /** Shown in place of the rows when there are none. */
  empty: ReactNode
  /** Scrolls within itself where it is tall, below a header that stays. */
  limited?: boolean
  /** The key of the row that is shown elsewhere on the page. */
  selected?: string
}

/** A table that scrolls sideways on narrow screens; the keys j and k move the focus by rows, Enter opens one. */
export function DataTable<Row>(props: DataTableProps<Row>): ReactNode {
  const { caption, columns, rows, rowKey, sort, onSort, empty, limited = false, selected } = props
  const id = useId()
  const naming = Math.max(0, columns.findIndex((column) => column.names === true))
  return (
    <div className={styles.box}>
      <div role="region" aria-labelledby={id} tabIndex={0} className={classes(styles.region, 'fades', limited && styles.limited)}>
        <table className={styles.table}>
          <caption id={id} className="visually-hidden">
            {caption}
          </caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <SortHeader key={column.id} column={column} sort={sort} onSort={onSort} />
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => {
              const key = rowKey(row)
              return (
                <tr key={key} data-row={key} tabIndex={-1} aria-current={key === selected || undefined}>
                  {columns.map((column, index) => {
                    const className = classes(column.align === 'end' && styles.end, column.wide && styles.wide)
                    return index === naming ? (
                      <th key={column.id} scope="row" className={className}>
                        {column.cell(row)}
                      </th>
                    ) : (
                      <td key={column.id} className={className}>
                        {column.cell(row)}
                      </td>
                    )
                  })}
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      {rows.length === 0 && empty}
    </div>
  )
}
