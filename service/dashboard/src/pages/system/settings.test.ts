import { describe, expect, it } from 'vitest'
import { matchingSettings, variableOf } from './settings'

const SETTINGS = [
  { name: 'scrub_bytes_per_second', value: '67108864', secret: false, is_default: true },
  { name: 's3_secret_key', value: 'set', secret: true, is_default: false },
  { name: 'retention_seconds', value: '900', secret: false, is_default: true },
]

describe('settings', () => {
  it.each([
    ['', 3],
    ['scrub', 1],
    ['SECOND', 2],
    ['seconds 900', 1],
    ['SHARDKEEP_SERVICE_S3', 1],
    ['nothing of the kind', 0],
  ])('are found by %j', (search, found) => {
    expect(matchingSettings(SETTINGS, search)).toHaveLength(found)
  })

  it('have a variable each', () => {
    expect(variableOf({ name: 'retention_seconds' })).toBe('SHARDKEEP_SERVICE_RETENTION_SECONDS')
  })
})
