import { given, textParam } from '../../app/searchParams'

/** Windows that can be chosen, in hours. */
export const WINDOWS = [
  { value: '24', label: 'Last 24 hours', hours: 24 },
  { value: '168', label: 'Last 7 days', hours: 168 },
  { value: '720', label: 'Last 30 days', hours: 720 },
  { value: '2160', label: 'Last 90 days', hours: 2160 },
] as const

export type Window = (typeof WINDOWS)[number]

export interface OverviewSearch {
  hours?: Window['hours']
  project?: string
}

export function readSearch(raw: Record<string, unknown>): OverviewSearch {
  const hours = WINDOWS.find((window) => window.hours === Number(raw.hours))?.hours
  return given({ hours, project: textParam(raw.project) })
}

/** The window the address asks for: a week, unless it says otherwise. */
export function windowOf({ hours }: OverviewSearch): Window {
  return WINDOWS.find((window) => window.hours === hours) ?? WINDOWS[1]
}
