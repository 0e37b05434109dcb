import { QueryClient } from '@tanstack/react-query'
import { asProblem } from './problem'

const TRIES = 2

/** Answers are asked for anew when a page is shown; only what may be repeated is repeated, twice at most. */
export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        retry: (failures, error) => failures < TRIES && asProblem(error).retryable,
        refetchOnWindowFocus: true,
      },
      mutations: { retry: false },
    },
  })
}
