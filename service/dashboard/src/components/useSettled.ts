import { useEffect, useState } from 'react'

/** The value once it has stayed the same for so long: what is typed in one go is asked for once. */
export function useSettled<Value>(value: Value, milliseconds = 300): Value {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const pause = window.setTimeout(setSettled, milliseconds, value)
    return () => {
      window.clearTimeout(pause)
    }
  }, [value, milliseconds])
  return settled
}
