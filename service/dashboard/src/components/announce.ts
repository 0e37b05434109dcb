import { createContext, useContext } from 'react'

export type Announce = (message: string) => void

export const AnnounceContext = createContext<Announce>(() => undefined)

/** Says a message in the page's polite live region, where it is seen and read out. */
export function useAnnounce(): Announce {
  return useContext(AnnounceContext)
}
