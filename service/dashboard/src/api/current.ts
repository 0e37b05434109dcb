interface Asked<Data> {
  data: Data | undefined
  isError: boolean
  isPlaceholderData: boolean
  fetchStatus: 'fetching' | 'paused' | 'idle'
}

/**
 * The answer, if it is that of now: undefined while it is asked for (again), and where that failed, though an older one is
 * shown. What cannot be undone is decided on nothing else.
 */
export function currentAnswer<Data>({ data, isError, isPlaceholderData, fetchStatus }: Asked<Data>): Data | undefined {
  return isError || isPlaceholderData || fetchStatus !== 'idle' ? undefined : data
}
