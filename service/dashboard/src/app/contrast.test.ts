import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const css = readFileSync(new URL('./tokens.css', import.meta.url), 'utf8')

/** The colours that a rule sets, by name. */
function colours(selector: string): Record<string, string> {
  const at = css.indexOf(`${selector} {`)
  if (at < 0) throw new Error(`tokens.css has no rule ${selector}`)
  const body = css.slice(at, css.indexOf('}', at))
  const set: Record<string, string> = {}
  for (const [, name = '', value = ''] of body.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)) set[name] = value
  return set
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5]
    .map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

function contrast(one: string, other: string): number {
  const both = [luminance(one), luminance(other)]
  return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05)
}

const GROUNDS = ['ground', 'surface', 'sunken', 'hover', 'accent-soft'] as const
const TEXT: readonly (readonly [string, string])[] = [
  ...['text', 'text-soft', 'accent'].flatMap((text) => GROUNDS.map((ground) => [text, ground] as const)),
  ...['good', 'warn', 'bad'].flatMap((text) =>
    ['ground', 'surface', 'sunken', 'hover', `${text}-soft`].map((ground) => [text, ground] as const),
  ),
  ['text', 'bad-soft'],
  ['text-soft', 'bad-soft'],
  ['on-accent', 'accent'],
]
const DRAWN = ['ground', 'surface', 'sunken'].flatMap((ground) => [
  ['line-strong', ground] as const,
  ['accent', ground] as const,
])

const THEMES = [
  ['light', colours(":root[data-theme='light']")],
  ['dark', colours(":root[data-theme='dark']")],
] as const

test.each(THEMES)('text of the %s theme stands out 4.5 to 1', (_, theme) => {
  const pale = TEXT.filter(([text, ground]) => contrast(theme[text] ?? '', theme[ground] ?? '') < 4.5)
  expect(pale).toEqual([])
})

test.each(THEMES)('borders of fields and what is drawn stand out 3 to 1 in the %s theme', (_, theme) => {
  const pale = DRAWN.filter(([line, ground]) => contrast(theme[line] ?? '', theme[ground] ?? '') < 3)
  expect(pale).toEqual([])
})

test('the dark theme is the same whether the system or the reader chose it', () => {
  expect(colours(":root:not([data-theme='light'])")).toEqual(colours(":root[data-theme='dark']"))
})
