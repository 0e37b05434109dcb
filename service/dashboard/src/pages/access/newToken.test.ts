import { describe, expect, it } from 'vitest'
import { NEW_TOKEN, newTokenId, readTokenForm, type TokenForm } from './newToken'

const ID = 'tok_0123456789abcdef0123456789abcdef'

function form(fields: Partial<TokenForm>): TokenForm {
  return { ...NEW_TOKEN, name: 'team', ...fields }
}

describe('the form of a new token', () => {
  it('asks for what its fields say', () => {
    const { request } = readTokenForm(form({ scope: 'read', projects: 'vision, audio vision', expiresIn: '30d' }), ID)
    expect(request).toEqual({
      kind: 'person',
      body: { id: ID, name: 'team', scope: 'read', projects: ['vision', 'audio'], expires_in_seconds: 2_592_000 },
    })
  })

  it('leaves out what is empty, which is then as the giver has it', () => {
    const { request } = readTokenForm(form({ projects: ' ', expiresIn: '' }), ID)
    expect(request?.body).toEqual({ id: ID, name: 'team', scope: 'write' })
  })

  it('asks for a job of one run', () => {
    const { request } = readTokenForm(form({ kind: 'job', run: 'vision/resnet', expiresIn: '24h' }), ID)
    expect(request).toEqual({
      kind: 'job',
      body: { id: ID, name: 'team', project: 'vision', run: 'resnet', scope: 'write', expires_in_seconds: 86_400 },
    })
  })

  it.each<[string, Partial<TokenForm>]>([
    ['name', { name: '  ' }],
    ['name', { name: 'x'.repeat(201) }],
    ['projects', { projects: '../etc' }],
    ['projects', { projects: Array.from({ length: 101 }, (_, number) => `p${number}`).join(' ') }],
    ['expiresIn', { expiresIn: 'forever' }],
    ['expiresIn', { expiresIn: '0d' }],
    ['expiresIn', { expiresIn: '9999d' }],
    ['run', { kind: 'job', run: 'vision' }],
    ['run', { kind: 'job', run: 'a/b/c' }],
    ['scope', { kind: 'job', run: 'a/b', scope: 'admin' }],
  ])('names %s where it is wrong', (field, fields) => {
    expect(Object.keys(readTokenForm(form(fields), ID).faults ?? {})).toEqual([field])
  })
})

it('draws ids that the API takes, each another', () => {
  const ids = new Set(Array.from({ length: 50 }, newTokenId))
  expect(ids.size).toBe(50)
  for (const id of ids) expect(id).toMatch(/^tok_[0-9a-f]{32}$/)
})
