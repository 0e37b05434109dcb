import { useMutation, useQueryClient, type QueryKey } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { useAnnounce } from './announce'
import { ProblemNotice } from './ProblemNotice'

export interface ActionOptions<Input, Result> {
  /** What is announced once it is done. */
  done: string | ((result: Result, input: Input) => string)
  /** The beginnings of the keys of what it changed, to be asked for anew. */
  invalidates: readonly QueryKey[]
}

export interface Action<Input, Result> {
  /** Runs it; a failure is shown by `notice`. */
  start: (input: Input) => void
  /** Runs it; rejects with the problem, for a `ConfirmDialog`, which shows it itself. */
  run: (input: Input) => Promise<Result>
  pending: boolean
  /** The problem of the last run, or nothing. */
  notice: ReactNode
}

/** A change through the API: it announces success, shows failure, and has what it changed asked for anew. */
export function useAction<Result, Input = void>(
  mutationFn: (input: Input) => Promise<Result>,
  { done, invalidates }: ActionOptions<Input, Result>,
): Action<Input, Result> {
  const announce = useAnnounce()
  const queryClient = useQueryClient()
  const again = (): Promise<unknown> =>
    Promise.all(invalidates.map((queryKey) => queryClient.invalidateQueries({ queryKey })))
  const mutation = useMutation<Result, unknown, Input>({
    mutationFn,
    onSuccess: async (result, input) => {
      announce(typeof done === 'string' ? done : done(result, input))
      await again()
    },
    // What was refused was decided on what is out of date, more often than not.
    onError: () => void again(),
  })
  return {
    start: (input) => {
      mutation.mutate(input)
    },
    run: (input) => mutation.mutateAsync(input),
    pending: mutation.isPending,
    notice: mutation.error === null ? null : <ProblemNotice error={mutation.error} />,
  }
}
