import { useLayoutEffect, useRef, type RefObject } from 'react'

/** A box that scrolls sideways, put at its end, where what is newest is: once it has a width, and when `newest` changes. */
export function useScrolledToEnd(newest: string | undefined, width = 1): RefObject<HTMLDivElement | null> {
  const ref = useRef<HTMLDivElement>(null)
  const isShown = width > 0
  useLayoutEffect(() => {
    if (isShown) ref.current?.scrollTo({ left: ref.current.scrollWidth })
  }, [newest, isShown])
  return ref
}
