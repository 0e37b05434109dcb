const NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?$/

/** What may name a project, a run or a tag, in words. */
export const NAME_RULE =
  '1 to 128 letters, digits, dots, dashes and underscores, from a letter or digit on, no dot at the end'

/** Whether the text may name a project, a run or a tag. The API decides; people learn of it earlier. */
export function isName(text: string): boolean {
  return NAME.test(text)
}
