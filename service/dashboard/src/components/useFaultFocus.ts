import { useEffect, useRef, type RefObject } from 'react'

/** The form, whose first wrong field gets the focus whenever faults are found: so what is wrong is read out. */
export function useFaultFocus(faults: object): RefObject<HTMLFormElement | null> {
  const form = useRef<HTMLFormElement>(null)
  useEffect(() => {
    if (Object.keys(faults).length > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus()
  }, [faults])
  return form
}
