/** What one poll saw of a save: `at` in seconds of the service's clock. */
export interface Sample {
  at: number
  offered: number
  present: number
}

/** Over how long a rate is taken: long enough to be steady, short enough to show a stall. */
const WINDOW_SECONDS = 30

/** `samples` with one more, without those that lie further back than the window. A save that began anew starts over. */
export function withSample(samples: readonly Sample[], sample: Sample): Sample[] {
  const last = samples.at(-1)
  if (last === undefined || sample.offered < last.offered) return [sample]
  if (sample.at <= last.at) return [...samples]
  return [...samples.filter(({ at }) => sample.at - at <= WINDOW_SECONDS), sample]
}

/** Bytes a second that ranks offered, and those of them they had to send; null before a second poll. */
export function rateOf(samples: readonly Sample[]): { offered: number; sent: number } | null {
  const first = samples[0]
  const last = samples.at(-1)
  if (first === undefined || last === undefined || last.at <= first.at) return null
  const seconds = last.at - first.at
  const sent = (sample: Sample) => Math.max(0, sample.offered - sample.present)
  return {
    offered: (last.offered - first.offered) / seconds,
    sent: Math.max(0, sent(last) - sent(first)) / seconds,
  }
}

/** How much of what is expected was offered, 0 to 1; null where nothing says what to expect. It is a guess: never 1. */
export function progressOf(offered: number, expected: number | null): number | null {
  if (expected === null || expected <= 0) return null
  return Math.min(0.99, offered / expected)
}

/** Seconds until the rest is offered at this rate; null without a rate or an end in sight. */
export function remainingSeconds(offered: number, expected: number | null, rate: number | null): number | null {
  if (expected === null || rate === null || rate <= 0 || offered >= expected) return null
  return (expected - offered) / rate
}
