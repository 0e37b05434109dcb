import type { Message } from '../../api/client'

type Setting = Message<'SettingInfo'>

/** The variable of the environment that sets it. */
export function variableOf(setting: Pick<Setting, 'name'>): string {
  return `SHARDKEEP_SERVICE_${setting.name.toUpperCase()}`
}

/** The settings whose name, variable or value holds every word that is searched for. */
export function matchingSettings(settings: readonly Setting[], search: string): Setting[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  return settings.filter((setting) => {
    const text = `${setting.name} ${variableOf(setting)} ${setting.value}`.toLowerCase()
    return words.every((word) => text.includes(word))
  })
}
