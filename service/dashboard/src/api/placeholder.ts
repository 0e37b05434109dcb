import { hashKey, type QueryKey } from '@tanstack/react-query'

/**
 * For `placeholderData`: the last answer stands in for the next one while both are of the same subject, which is all of
 * their keys but the last part. Another page or filter of a list keeps what is shown until it comes; another run does not.
 */
export function whileSameSubject(key: QueryKey) {
  const subject = subjectOf(key)
  return <Data>(before: Data | undefined, query: { queryKey: QueryKey } | undefined): Data | undefined =>
    query !== undefined && subjectOf(query.queryKey) === subject ? before : undefined
}

function subjectOf(key: QueryKey): string {
  return hashKey(key.slice(0, -1))
}
