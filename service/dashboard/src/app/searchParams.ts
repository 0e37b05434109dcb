/** Reading one parameter of an address bar, where anybody may have written anything. Pure. */

/** A text; undefined where there is none. */
export function textParam(raw: unknown): string | undefined {
  // The router reads what looks like a number as one.
  const text = typeof raw === 'string' || typeof raw === 'number' ? String(raw).trim() : ''
  return text === '' ? undefined : text
}

/** True, or undefined: what is not asked for is not written in the address. */
export function flagParam(raw: unknown): true | undefined {
  return raw === true || raw === 'true' ? true : undefined
}

/** One of the words that are known; undefined for any other. */
export function oneOfParam<Word extends string>(raw: unknown, words: readonly Word[]): Word | undefined {
  return words.find((word) => word === raw)
}

/** What is there, without what is undefined, so that addresses stay short and types exact. */
export function given<Search extends Record<string, unknown>>(search: Search): Given<Search> {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined)) as Given<Search>
}

type Given<Search> = { [Name in keyof Search]?: Exclude<Search[Name], undefined> }

/** The search without some of its parameters, so that a link can drop them. */
export function without<Search extends object, Name extends keyof Search>(
  search: Search,
  ...names: Name[]
): Omit<Search, Name> {
  const dropped = new Set<PropertyKey>(names)
  return Object.fromEntries(Object.entries(search).filter(([name]) => !dropped.has(name))) as Omit<Search, Name>
}
