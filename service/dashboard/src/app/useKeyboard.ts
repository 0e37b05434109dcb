import { useNavigate } from '@tanstack/react-router'
import { useEffect } from 'react'
import { focusSearch, isForPage, moveRow, openRow, PLACES, singleKeysOn } from './keyboard'

const CHORD_MILLISECONDS = 1_500

/** Listens for the dashboard's keys while the shell is shown. */
export function useKeyboard(showHelp: () => void): void {
  const navigate = useNavigate()
  useEffect(() => {
    let wentAt = Number.NEGATIVE_INFINITY

    const goes = (key: string, at: number): boolean => {
      if (at - wentAt > CHORD_MILLISECONDS) return false
      wentAt = Number.NEGATIVE_INFINITY
      const place = PLACES.find((candidate) => candidate.key === key)
      if (place !== undefined) void navigate({ to: place.to })
      return place !== undefined
    }

    const acts = (event: KeyboardEvent): boolean => {
      if (event.key === 'Enter') return openRow()
      if (!singleKeysOn()) return false
      if (goes(event.key, event.timeStamp)) return true
      if (event.key === 'g') wentAt = event.timeStamp
      if (event.key === '/') return focusSearch()
      if (event.key === 'j') return moveRow(1)
      if (event.key === 'k') return moveRow(-1)
      if (event.key === '?') showHelp()
      return event.key === '?'
    }

    const pressed = (event: KeyboardEvent): void => {
      if (isForPage(event) && acts(event)) event.preventDefault()
    }
    document.addEventListener('keydown', pressed)
    return () => {
      document.removeEventListener('keydown', pressed)
    }
  }, [navigate, showHelp])
}
