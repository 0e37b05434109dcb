import { createContext, useContext } from 'react'

export type Announce = (message: string) => void

export const AnnounceContext = createContext<Announce>(() => undefined)

/** Says a message in the polite live region of the page, or of the dialog that this is in, where it is seen and read out. */
export function useAnnounce(): Announce {
  return useContext(AnnounceContext)
}
