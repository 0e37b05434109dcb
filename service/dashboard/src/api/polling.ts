import { asProblem } from './problem'

interface Polled<Data> {
  state: { data: Data | undefined; error: Error | null }
}

/**
 * Asks again every so often; but not for what was refused for good, as a run that is not there or one that this token may
 * not see: that is asked for again by hand, or when the page is come back to.
 */
export function every(milliseconds: number) {
  return everyAs<unknown>(() => milliseconds)
}

/** The same as often as what was answered calls for, which may be never. */
export function everyAs<Data>(milliseconds: (data: Data | undefined) => number | false) {
  return ({ state: { data, error } }: Polled<Data>): number | false =>
    error !== null && !asProblem(error).retryable ? false : milliseconds(data)
}

/** The same for a list whose newest come first: pages further back hardly change, and are not asked for again. */
export function everyOnFirstPage(cursor: string | null | undefined, milliseconds: number) {
  return cursor == null ? every(milliseconds) : (false as const)
}
