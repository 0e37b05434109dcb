import { describe, expect, it } from 'vitest'

import { EMPTY_FORM, formOf, isEmpty, readForm, ruleTexts, rulesOfSearch, sameRules, setCommand } from './rules'
import type { PolicyForm, RetentionRules } from './rules'

const ALL: RetentionRules = {
  keep_last: 3,
  every_steps: 1_000,
  best: [{ metric: 'loss', mode: 'min', count: 2 }],
  tags: ['golden', 'release-1.0'],
  younger_than_seconds: 43_200,
  off_line_seconds: 1_209_600,
}

function form(fields: Partial<PolicyForm>): PolicyForm {
  return { ...EMPTY_FORM, ...fields }
}

describe('a form', () => {
  it('gives back the rules it was made of', () => {
    expect(readForm(formOf(ALL)).rules).toEqual(ALL)
  })

  it('takes empty fields for no rule and a week off the line', () => {
    expect(readForm(form({ keepLast: ' 5 ', offLine: '' })).rules).toEqual({
      keep_last: 5,
      every_steps: null,
      best: [],
      tags: [],
      younger_than_seconds: null,
      off_line_seconds: 604_800,
    })
  })

  it('reads tags between blanks and commas, each once', () => {
    expect(readForm(form({ tags: 'golden, best\n golden' })).rules?.tags).toEqual(['golden', 'best'])
  })

  it('may keep nothing off the line', () => {
    expect(readForm(form({ keepLast: '1', offLine: '0d' })).rules?.off_line_seconds).toBe(0)
  })

  it('is refused when it keeps nothing, as the API refuses it', () => {
    expect(readForm(EMPTY_FORM).faults?.form).toContain('at least one rule')
  })

  it.each<[string, Partial<PolicyForm>]>([
    ['keepLast', { keepLast: '0' }],
    ['keepLast', { keepLast: '-1' }],
    ['keepLast', { keepLast: '2.5' }],
    ['everySteps', { everySteps: '1000000001' }],
    ['youngerThan', { youngerThan: '0d' }],
    ['youngerThan', { youngerThan: 'two days' }],
    ['offLine', { keepLast: '1', offLine: 'soon' }],
    ['tags', { tags: 'fine <b>' }],
    ['best.0.metric', { best: [{ metric: ' ', mode: 'min', count: '1' }] }],
    [
      'best.1.count',
      {
        best: [
          { metric: 'a', mode: 'min', count: '' },
          { metric: 'b', mode: 'max', count: 'none' },
        ],
      },
    ],
  ])('names the field %s that is wrong', (field, fields) => {
    expect(Object.keys(readForm(form(fields)).faults ?? {})).toEqual([field])
  })

  it('names every wrong field at once', () => {
    const faults = readForm(form({ keepLast: 'x', youngerThan: 'y' })).faults ?? {}
    expect(Object.keys(faults).sort()).toEqual(['keepLast', 'youngerThan'])
  })
})

describe('rules', () => {
  it('are the same whatever members were left out', () => {
    expect(sameRules({ keep_last: 3, off_line_seconds: 604_800 }, { ...EMPTY_RULES, keep_last: 3 })).toBe(true)
    expect(sameRules({ keep_last: 3, off_line_seconds: 604_800 }, { ...EMPTY_RULES, keep_last: 4 })).toBe(false)
  })

  it('that keep only what is off the line are empty', () => {
    expect(isEmpty({ off_line_seconds: 86_400 })).toBe(true)
    expect(isEmpty({ off_line_seconds: 0, tags: ['x'] })).toBe(false)
  })

  it('are told a sentence each', () => {
    expect(ruleTexts(ALL)).toEqual([
      'the newest 3 on the line',
      'the first at or after each multiple of 1,000 steps',
      'the best 2 by min of loss',
      'what has one of the tags golden, release-1.0',
      'what was committed less than 12h ago',
      'what a rollback left off the line less than 14d ago',
    ])
  })

  it('come back from an address', () => {
    const address: unknown = JSON.parse('{"keep_last":3,"best":[{"metric":"loss","mode":"max","count":1}]}')
    expect(rulesOfSearch(address)).toEqual({
      ...EMPTY_RULES,
      keep_last: 3,
      best: [{ metric: 'loss', mode: 'max', count: 1 }],
    })
  })

  it.each([
    undefined,
    null,
    'keep',
    3,
    [],
    {},
    { keep_last: '<script>' },
    { keep_last: -1 },
    { best: [{}] },
    { tags: [{}] },
  ])('do not come back from %j', (address) => {
    expect(rulesOfSearch(address)).toBeUndefined()
  })
})

describe('the command', () => {
  it('sets the same rules', () => {
    expect(setCommand({ project: 'vision', run: 'resnet' }, ALL)).toBe(
      'shardkeep retention set vision/resnet --keep-last 3 --every-steps 1000 --best loss:min:2' +
        ' --tag golden --tag release-1.0 --younger-than 12h --off-line 14d',
    )
  })

  it('quotes what a shell would read', () => {
    const rules: RetentionRules = { ...EMPTY_RULES, best: [{ metric: "it's $HOME", mode: 'min', count: 1 }] }
    expect(setCommand({ project: 'p' }, rules)).toBe("shardkeep retention set p --best 'it'\\''s $HOME:min'")
  })

  it('is not given where its options cannot say it', () => {
    expect(setCommand({ project: 'p' }, { ...EMPTY_RULES, keep_last: 1, off_line_seconds: 0 })).toBeUndefined()
  })
})

const EMPTY_RULES: RetentionRules = {
  keep_last: null,
  every_steps: null,
  best: [],
  tags: [],
  younger_than_seconds: null,
  off_line_seconds: 604_800,
}
