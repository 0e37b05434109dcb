import { afterEach, describe, expect, test, vi } from 'vitest'
import type { timeLabels as TimeLabels } from './timeLabels'

const ZONE = process.env.TZ

afterEach(() => {
  if (ZONE === undefined) delete process.env.TZ
  else process.env.TZ = ZONE
})

/** As a reader in this zone has it: what writes times takes the zone once, when it is loaded. */
async function labelsIn(zone: string): Promise<typeof TimeLabels> {
  process.env.TZ = zone
  vi.resetModules()
  return (await import('./timeLabels')).timeLabels
}

function seconds(iso: string): number {
  return Date.parse(iso) / 1000
}

/** How many days of the reader's clock each label is after the one before. */
function daysBetween(labels: readonly { at: number }[]): number[] {
  const days = labels.map(({ at }) => {
    const time = new Date(at * 1000)
    expect([time.getHours(), time.getMinutes()]).toEqual([0, 0])
    return Date.UTC(time.getFullYear(), time.getMonth(), time.getDate()) / 86_400_000
  })
  return days.slice(1).map((day, index) => day - (days[index] ?? 0))
}

describe.each(['America/Los_Angeles', 'Europe/Berlin', 'Asia/Kolkata', 'UTC'])('in %s', (zone) => {
  test.each([
    ['2026-03-06T16:00:00Z', 7, 4],
    ['2026-03-06T16:00:00Z', 7, 12],
    ['2026-03-01T00:00:00Z', 30, 8],
    ['2026-10-20T00:00:00Z', 30, 5],
    ['2026-01-01T12:00:00Z', 90, 6],
  ])('days from %s on, %d of them, are labelled where they begin, at equal distances and each once', async (start, days, most) => {
    const timeLabels = await labelsIn(zone)
    const first = seconds(start)
    const labels = timeLabels(first, first + days * 86_400, most)
    expect(labels.length).toBeGreaterThan(1)
    expect(labels.length).toBeLessThanOrEqual(most + 1)
    expect(new Set(daysBetween(labels)).size).toBe(1)
    expect(new Set(labels.map(({ text }) => text)).size).toBe(labels.length)
    expect(labels.every(({ at }) => at >= first && at < first + days * 86_400)).toBe(true)
  })

  test.each([3, 6, 13])('hours of a day across a change of the clock are whole and each once, with room for %d', async (most) => {
    const timeLabels = await labelsIn(zone)
    for (const start of ['2026-03-08T00:00:00Z', '2026-03-28T18:00:00Z', '2026-11-01T00:00:00Z', '2026-10-24T18:00:00Z']) {
      const first = seconds(start)
      const texts = timeLabels(first, first + 24 * 3600, most).map(({ text }) => text)
      expect(texts.length).toBeGreaterThan(1)
      expect(texts.every((text) => text.endsWith(':00'))).toBe(true)
      expect(new Set(texts).size).toBe(texts.length)
    }
  })
})

test('what begins with a day has its label first', async () => {
  const timeLabels = await labelsIn('UTC')
  expect(timeLabels(seconds('2026-03-01T00:00:00Z'), seconds('2026-03-08T00:00:00Z'), 4).map(({ text }) => text)).toEqual([
    'Mar 1',
    'Mar 3',
    'Mar 5',
    'Mar 7',
  ])
})

test('nothing is labelled of no time', async () => {
  const timeLabels = await labelsIn('UTC')
  expect(timeLabels(0, 0, 5)).toEqual([])
  expect(timeLabels(Number.NaN, Number.NaN, 5)).toEqual([])
})
