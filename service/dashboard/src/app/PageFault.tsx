import type { ErrorComponentProps } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Page } from '../components/Page'
import { ProblemNotice } from '../components/ProblemNotice'

/** What is shown where a page itself failed. */
export function PageFault({ error, reset }: ErrorComponentProps): ReactNode {
  return (
    <Page title="This page failed">
      <ProblemNotice error={error} onRetry={reset} />
    </Page>
  )
}
