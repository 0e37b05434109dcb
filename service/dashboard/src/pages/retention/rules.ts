/** A retention policy as a form of texts, and as the rules that the API takes. Pure. */

import type { Message } from '../../api/client'
import { readDuration, writeDuration } from '../../format/durationText'
import { isName } from '../../format/names'
import { count } from '../../format/numbers'

export type RetentionRules = Message<'RetentionRules'>
export type BestRule = Message<'BestRule'>

export const OFF_LINE_SECONDS = 604_800
const LARGEST_COUNT = 1_000_000_000
const LONGEST_SECONDS = 10_000_000_000
const BEST_LIMIT = 20
const TAGS_LIMIT = 100
const METRIC_LENGTH = 200

export interface BestFields {
  metric: string
  mode: 'min' | 'max'
  count: string
}

/** What the fields hold while somebody types. An empty text is no such rule. */
export interface PolicyForm {
  keepLast: string
  everySteps: string
  best: readonly BestFields[]
  tags: string
  youngerThan: string
  offLine: string
}

/** What is wrong, by field: `keepLast`, `best.0.metric`; `form` for the whole. */
export type Faults = Readonly<Record<string, string>>

export type ReadForm = { rules: RetentionRules; faults?: never } | { rules?: never; faults: Faults }

export const EMPTY_FORM: PolicyForm = {
  keepLast: '',
  everySteps: '',
  best: [],
  tags: '',
  youngerThan: '',
  offLine: writeDuration(OFF_LINE_SECONDS),
}

export function formOf(rules: RetentionRules): PolicyForm {
  return {
    keepLast: countText(rules.keep_last),
    everySteps: countText(rules.every_steps),
    best: (rules.best ?? []).map(({ metric, mode, count }) => ({ metric, mode, count: countText(count) })),
    tags: (rules.tags ?? []).join(' '),
    youngerThan: rules.younger_than_seconds == null ? '' : writeDuration(rules.younger_than_seconds),
    offLine: writeDuration(rules.off_line_seconds),
  }
}

/** The rules of a form, or what is wrong with each of its fields: the limits are the API's. */
export function readForm(form: PolicyForm): ReadForm {
  const faults: Record<string, string> = {}
  const rules: RetentionRules = {
    keep_last: readCount(form.keepLast, 'keepLast', faults),
    every_steps: readCount(form.everySteps, 'everySteps', faults),
    best: form.best.map((fields, place) => readBest(fields, place, faults)),
    tags: readTags(form.tags, faults),
    younger_than_seconds:
      form.youngerThan.trim() === '' ? null : readSeconds(form.youngerThan, 'youngerThan', 1, faults),
    off_line_seconds:
      form.offLine.trim() === ''
        ? OFF_LINE_SECONDS
        : (readSeconds(form.offLine, 'offLine', 0, faults) ?? OFF_LINE_SECONDS),
  }
  if (form.best.length > BEST_LIMIT) {
    faults.form = `At most ${BEST_LIMIT} rules for the best.`
  }
  if (Object.keys(faults).length === 0 && isEmpty(rules)) {
    faults.form = 'A policy keeps something: fill in at least one rule. Without a policy everything is kept.'
  }
  return Object.keys(faults).length === 0 ? { rules } : { faults }
}

/** Whether nothing on the line is kept by these rules: no policy, and refused. */
export function isEmpty(rules: RetentionRules): boolean {
  const counted = rules.keep_last ?? rules.every_steps ?? rules.younger_than_seconds
  return counted == null && (rules.best ?? []).length === 0 && (rules.tags ?? []).length === 0
}

export function sameRules(one: RetentionRules, other: RetentionRules): boolean {
  return JSON.stringify(canonical(one)) === JSON.stringify(canonical(other))
}

/** One sentence a rule, as docs/retention.md words them. */
export function ruleTexts(rules: RetentionRules): string[] {
  const texts: string[] = []
  if (rules.keep_last != null) {
    texts.push(`the newest ${count(rules.keep_last)} on the line`)
  }
  if (rules.every_steps != null) {
    texts.push(`the first at or after each multiple of ${count(rules.every_steps)} steps`)
  }
  for (const { metric, mode, count: most } of rules.best ?? []) {
    texts.push(`the best ${count(most)} by ${mode} of ${metric}`)
  }
  if ((rules.tags ?? []).length > 0) {
    texts.push(`what has ${rules.tags?.length === 1 ? 'the tag' : 'one of the tags'} ${(rules.tags ?? []).join(', ')}`)
  }
  if (rules.younger_than_seconds != null) {
    texts.push(`what was committed less than ${writeDuration(rules.younger_than_seconds)} ago`)
  }
  texts.push(`what a rollback left off the line less than ${writeDuration(rules.off_line_seconds)} ago`)
  return texts
}

/** The command that sets these rules; undefined where its options cannot say them. */
export function setCommand(
  place: { project: string; run?: string | undefined },
  rules: RetentionRules,
): string | undefined {
  if (rules.off_line_seconds === 0) {
    return undefined // a duration of the command line is never zero
  }
  const words = ['shardkeep retention set', placeText(place)]
  if (rules.keep_last != null) words.push('--keep-last', String(rules.keep_last))
  if (rules.every_steps != null) words.push('--every-steps', String(rules.every_steps))
  for (const { metric, mode, count } of rules.best ?? []) {
    if (metric.includes(':')) return undefined // the command line splits there
    words.push('--best', shellWord(`${metric}:${mode}${count === 1 ? '' : `:${count}`}`))
  }
  for (const tag of rules.tags ?? []) words.push('--tag', tag)
  if (rules.younger_than_seconds != null) words.push('--younger-than', writeDuration(rules.younger_than_seconds))
  if (rules.off_line_seconds !== OFF_LINE_SECONDS) words.push('--off-line', writeDuration(rules.off_line_seconds))
  return words.join(' ')
}

export function placeText({ project, run }: { project: string; run?: string | undefined }): string {
  return run === undefined ? project : `${project}/${run}`
}

/** Rules out of an address bar: undefined unless they are whole and something the API would take. */
export function rulesOfSearch(given: unknown): RetentionRules | undefined {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    return undefined
  }
  const raw = given as Partial<Record<keyof RetentionRules, unknown>>
  const best: unknown[] = Array.isArray(raw.best) ? raw.best : []
  const tags: unknown[] = Array.isArray(raw.tags) ? raw.tags : []
  const form: PolicyForm = {
    keepLast: searchText(raw.keep_last),
    everySteps: searchText(raw.every_steps),
    best: best.map(bestOfSearch),
    tags: tags.map(searchText).join(' '),
    youngerThan: raw.younger_than_seconds == null ? '' : `${searchText(raw.younger_than_seconds)}s`,
    offLine: raw.off_line_seconds == null ? '' : `${searchText(raw.off_line_seconds)}s`,
  }
  return readForm(form).rules
}

/** The same rules without what says nothing, so that addresses stay short. */
export function canonical(rules: RetentionRules): Partial<RetentionRules> {
  const { best = [], tags = [] } = rules
  return {
    ...(rules.keep_last == null ? {} : { keep_last: rules.keep_last }),
    ...(rules.every_steps == null ? {} : { every_steps: rules.every_steps }),
    ...(best.length === 0 ? {} : { best: best.map(({ metric, mode, count }) => ({ metric, mode, count })) }),
    ...(tags.length === 0 ? {} : { tags: [...tags] }),
    ...(rules.younger_than_seconds == null ? {} : { younger_than_seconds: rules.younger_than_seconds }),
    ...(rules.off_line_seconds === OFF_LINE_SECONDS ? {} : { off_line_seconds: rules.off_line_seconds }),
  }
}

function readCount(text: string, field: string, faults: Record<string, string>): number | null {
  const trimmed = text.trim()
  if (trimmed === '') {
    return null
  }
  const number = /^\d{1,10}$/.test(trimmed) ? Number(trimmed) : 0
  if (number < 1 || number > LARGEST_COUNT) {
    faults[field] = 'Give a whole number from 1 to 1,000,000,000, or leave it empty.'
    return null
  }
  return number
}

function readBest(fields: BestFields, place: number, faults: Record<string, string>): BestRule {
  const metric = fields.metric.trim()
  if (metric === '' || metric.length > METRIC_LENGTH) {
    faults[`best.${place}.metric`] = `Name a metric, with at most ${METRIC_LENGTH} characters.`
  }
  return { metric, mode: fields.mode, count: readCount(fields.count, `best.${place}.count`, faults) ?? 1 }
}

function readTags(text: string, faults: Record<string, string>): string[] {
  const tags = [...new Set(text.split(/[\s,]+/).filter((tag) => tag !== ''))]
  const wrong = tags.find((tag) => !isName(tag))
  if (wrong !== undefined) {
    faults.tags = `${JSON.stringify(wrong.slice(0, 40))} is no tag: letters, digits, dots, dashes and underscores, at most 128.`
  } else if (tags.length > TAGS_LIMIT) {
    faults.tags = `At most ${TAGS_LIMIT} tags.`
  }
  return tags
}

function readSeconds(text: string, field: string, least: number, faults: Record<string, string>): number | null {
  const seconds = readDuration(text)
  if (seconds === undefined || seconds < least || seconds > LONGEST_SECONDS) {
    faults[field] = 'Write a duration such as 14d, 12h or 45m.'
    return null
  }
  return seconds
}

function bestOfSearch(given: unknown): BestFields {
  const raw = (typeof given === 'object' && given !== null ? given : {}) as Partial<Record<keyof BestRule, unknown>>
  return {
    metric: typeof raw.metric === 'string' ? raw.metric : '',
    mode: raw.mode === 'max' ? 'max' : 'min',
    count: searchText(raw.count ?? 1),
  }
}

function searchText(given: unknown): string {
  return typeof given === 'number' || typeof given === 'string' ? String(given) : ''
}

function countText(number: number | null | undefined): string {
  return number == null ? '' : String(number)
}

function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@=+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
