import type { ReactNode } from 'react'
import styles from './DataTable.module.css'
import { Icon } from './Icon'

export interface Sort {
  /** What the API calls the order. */
  by: string
  order: 'asc' | 'desc'
}

export interface SortHeaderProps {
  column: { header: string; sort?: string; align?: 'end' }
  sort: Sort | undefined
  onSort: ((sort: Sort) => void) | undefined
}

/** The header of a column; a button where the API can sort by it. The first press sorts downwards. */
export function SortHeader({ column, sort, onSort }: SortHeaderProps): ReactNode {
  const className = column.align === 'end' ? styles.end : undefined
  const by = column.sort
  if (by === undefined || onSort === undefined) {
    return (
      <th scope="col" className={className}>
        {column.header}
      </th>
    )
  }
  const order = sort?.by === by ? sort.order : undefined
  return (
    <th scope="col" className={className} aria-sort={order && (order === 'asc' ? 'ascending' : 'descending')}>
      <button
        type="button"
        className={styles.sort}
        onClick={() => {
          onSort({ by, order: order === 'desc' ? 'asc' : 'desc' })
        }}
      >
        {column.header}
        <span className={styles.arrow} data-shown={order !== undefined}>
          <Icon name={order === 'asc' ? 'up' : 'down'} />
        </span>
      </button>
    </th>
  )
}
