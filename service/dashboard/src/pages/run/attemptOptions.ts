import type { Message } from '../../api/client'

const SHORT = 12

/**
 * What the list of checkpoints can be narrowed to by attempt. The one that the address names is among them even where it is
 * older than the newest that are known, or these are not known yet: the field says what the list is narrowed to.
 */
export function attemptOptions(
  attempts: readonly Pick<Message<'AttemptInfo'>, 'id' | 'number'>[],
  chosen: string | undefined,
): { value: string; label: string }[] {
  const known = attempts.map(({ id, number }) => ({ value: id, label: `Attempt ${number}` }))
  const isKnown = chosen === undefined || attempts.some(({ id }) => id === chosen)
  const other = isKnown ? [] : [{ value: chosen, label: `Attempt ${chosen.slice(0, SHORT)}…` }]
  return [{ value: '', label: 'Any' }, ...other, ...known]
}
