import { useSyncExternalStore } from 'react'

/** Less than what counts as just now, so that nothing new seems to lie ahead. */
const TICK_MILLISECONDS = 5_000

const listeners = new Set<() => void>()
let now = new Date()
let timer: number | undefined

/** The time, which ticks every 5 seconds, with one timer for the whole page. */
export function useNow(): Date {
  return useSyncExternalStore(listen, () => now)
}

function listen(listener: () => void): () => void {
  if (listeners.size === 0) {
    now = new Date()
    timer = window.setInterval(tick, TICK_MILLISECONDS)
  }
  listeners.add(listener)
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0) window.clearInterval(timer)
  }
}

function tick(): void {
  now = new Date()
  for (const listener of listeners) listener()
}
