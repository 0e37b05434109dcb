/** What each state looks like, wherever it is drawn: a badge, a timeline, a heat map. */

export type Shape = 'disc' | 'ring' | 'half' | 'play' | 'cross' | 'diamond' | 'dash' | 'bars' | 'dot'
export type Tone = 'good' | 'busy' | 'bad' | 'warn' | 'soft'

/** Paths in a box of 12 by 12. */
export const SHAPES: Record<Shape, { path: string; filled: boolean }> = {
  disc: { path: 'M6 1.500a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9Z', filled: true },
  ring: { path: 'M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z', filled: false },
  half: { path: 'M6 1.500a4.5 4.5 0 0 0 0 9ZM7.5 1.800a4.5 4.5 0 0 1 0 8.4', filled: true },
  play: { path: 'M3 1.5 10.5 6 3 10.500Z', filled: true },
  cross: { path: 'M2.5 2.500l7 7M9.5 2.500l-7 7', filled: false },
  diamond: { path: 'M6 0.8 11.2 6 6 11.2 0.8 6Z', filled: true },
  dash: { path: 'M2 6h8', filled: false },
  bars: { path: 'M3.5 2.500v7M8.5 2.500v7', filled: false },
  dot: { path: 'M6 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4Z', filled: true },
}

const STATES: Record<string, { shape: Shape; tone: Tone }> = {
  // Checkpoints.
  open: { shape: 'play', tone: 'busy' },
  validating: { shape: 'half', tone: 'busy' },
  committed: { shape: 'disc', tone: 'good' },
  aborted: { shape: 'cross', tone: 'bad' },
  deleted: { shape: 'dash', tone: 'soft' },
  purged: { shape: 'dot', tone: 'soft' },
  unconfirmed: { shape: 'ring', tone: 'warn' },
  quarantined: { shape: 'diamond', tone: 'bad' },
  // Runs.
  new: { shape: 'ring', tone: 'soft' },
  saving: { shape: 'play', tone: 'busy' },
  idle: { shape: 'bars', tone: 'soft' },
  // Ranks.
  absent: { shape: 'ring', tone: 'bad' },
  sending: { shape: 'play', tone: 'busy' },
  arrived: { shape: 'disc', tone: 'good' },
  // Save requests, probes, tokens, findings, work in the background.
  waiting: { shape: 'half', tone: 'warn' },
  done: { shape: 'disc', tone: 'good' },
  passed: { shape: 'disc', tone: 'good' },
  failed: { shape: 'cross', tone: 'bad' },
  living: { shape: 'disc', tone: 'good' },
  expired: { shape: 'dash', tone: 'soft' },
  revoked: { shape: 'cross', tone: 'soft' },
  resolved: { shape: 'disc', tone: 'good' },
  running: { shape: 'play', tone: 'busy' },
  kept: { shape: 'disc', tone: 'good' },
  damaged: { shape: 'diamond', tone: 'bad' },
  lost: { shape: 'cross', tone: 'bad' },
  stopped: { shape: 'cross', tone: 'bad' },
}

/** The look of a state; one that a newer service may know has a shape of its own. */
export function shapeOf(state: string): { shape: Shape; tone: Tone } {
  return STATES[state] ?? { shape: 'dot', tone: 'warn' }
}
