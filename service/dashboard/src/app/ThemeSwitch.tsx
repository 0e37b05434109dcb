import { useState, type ReactNode } from 'react'
import { SelectField } from '../components/SelectField'
import { chooseTheme, chosenTheme, type Theme } from './theme'

const OPTIONS: readonly { value: Theme; label: string }[] = [
  { value: 'system', label: 'Theme: system' },
  { value: 'light', label: 'Theme: light' },
  { value: 'dark', label: 'Theme: dark' },
]

export function ThemeSwitch(): ReactNode {
  const [theme, setTheme] = useState(chosenTheme)
  const choose = (next: Theme): void => {
    chooseTheme(next)
    setTheme(next)
  }
  return <SelectField label="Theme" hideLabel value={theme} options={OPTIONS} onChange={choose} />
}
