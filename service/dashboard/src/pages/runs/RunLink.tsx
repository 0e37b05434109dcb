import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Message } from '../../api/client'

export function RunLink({ run }: { run: Message<'RunSummary'> }): ReactNode {
  return (
    <Link to="/runs/$project/$run" params={{ project: run.project, run: run.name }}>
      {run.project}/{run.name}
    </Link>
  )
}
