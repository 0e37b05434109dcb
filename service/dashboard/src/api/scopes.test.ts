import { expect, test } from 'vitest'
import type { Message } from './client'
import { isBound, projectsOf, reach, refusal } from './scopes'

const token: Message<'TokenInfo'> = {
  id: 'tok_1', name: 'ops', prefix: 'abcd', scope: 'write', project: null, created_at: '2026-01-01T00:00:00Z',
  expires_at: null, last_used_at: null, revoked_at: null,
}

test('each scope includes those above it', () => {
  expect(refusal(token, 'read')).toBeUndefined()
  expect(refusal(token, 'write')).toBeUndefined()
  expect(refusal(token, 'delete')).toContain('scope delete')
  expect(refusal({ ...token, scope: 'unheard of' }, 'read')).toContain('unheard of')
})

test('what needs all projects is not for a token that is bound to some', () => {
  const bound = { ...token, scope: 'admin', project: 'vision', projects: ['vision'] }
  expect(refusal(bound, 'admin')).toBeUndefined()
  expect(refusal(bound, 'admin', true)).toContain('all projects')
  expect(isBound(token)).toBe(false)
})

test('the projects of tokens of older services are known too', () => {
  expect(projectsOf({ project: null, projects: null })).toBeNull()
  expect(projectsOf({ project: 'a' })).toEqual(['a'])
  expect(projectsOf({ project: 'a', projects: ['a', 'b'] })).toEqual(['a', 'b'])
})

test('what a token reaches is said in words', () => {
  expect(reach(token)).toBe('all projects')
  expect(reach({ ...token, project: 'vision' })).toBe('project vision')
  expect(reach({ ...token, project: 'a', projects: ['a', 'b'] })).toBe('2 projects')
  expect(reach({ ...token, project: 'a', run: 'b' })).toBe('run a/b')
})
