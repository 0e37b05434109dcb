import type { Message } from '../../api/client'
import { readDuration } from '../../format/durationText'
import { isName } from '../../format/names'

type Scope = Message<'CreateToken'>['scope']

export const SCOPES: readonly { scope: Scope; may: string }[] = [
  { scope: 'metrics', may: 'read /metrics, for Prometheus, and nothing else' },
  { scope: 'read', may: 'load checkpoints, list, ask' },
  { scope: 'write', may: 'also save, pin, tag, mint tokens for jobs' },
  { scope: 'delete', may: 'also delete and restore checkpoints and runs' },
  { scope: 'admin', may: 'also administer projects, tokens and retention, read the audit log' },
]

const PROJECTS_LIMIT = 100
const NAME_LENGTH = 200
const LONGEST_SECONDS = 10 * 366 * 86_400

/** What the fields of the dialog hold. */
export interface TokenForm {
  kind: 'person' | 'job'
  name: string
  scope: Scope
  /** Names between blanks or commas; empty for all that the giver sees. */
  projects: string
  /** `project/run`, of a job's token. */
  run: string
  /** `90d`; empty for as long as the giver's. */
  expiresIn: string
}

export type TokenFaults = Partial<Record<'name' | 'projects' | 'run' | 'scope' | 'expiresIn', string>>

export type TokenRequest =
  { kind: 'person'; body: Message<'CreateToken'> } | { kind: 'job'; body: Message<'CreateJobToken'> }

export const NEW_TOKEN: TokenForm = {
  kind: 'person',
  name: '',
  scope: 'write',
  projects: '',
  run: '',
  expiresIn: '90d',
}

/** The request of a form under an id of its own, which makes it repeatable; or what is wrong with its fields. */
export function readTokenForm(
  form: TokenForm,
  id: string,
): { request: TokenRequest; faults?: never } | { request?: never; faults: TokenFaults } {
  const faults: TokenFaults = {}
  const name = form.name.trim()
  if (name === '' || name.length > NAME_LENGTH) faults.name = `Give a name of 1 to ${NAME_LENGTH} characters.`
  const seconds = form.expiresIn.trim() === '' ? null : readLifetime(form.expiresIn, faults)
  const request = form.kind === 'job' ? jobRequest(form, faults) : personRequest(form, faults)
  if (Object.keys(faults).length > 0) return { faults }
  const lifetime = seconds === null ? {} : { expires_in_seconds: seconds }
  Object.assign(request.body, { id, name }, lifetime)
  return { request }
}

/** A fresh id for a request that makes a token. */
export function newTokenId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return `tok_${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`
}

function personRequest(form: TokenForm, faults: TokenFaults): TokenRequest {
  const projects = [...new Set(form.projects.split(/[\s,]+/).filter((name) => name !== ''))]
  const wrong = projects.find((name) => !isName(name))
  if (wrong !== undefined) faults.projects = `${JSON.stringify(wrong.slice(0, 40))} cannot name a project.`
  else if (projects.length > PROJECTS_LIMIT) faults.projects = `At most ${PROJECTS_LIMIT} projects.`
  const bound = projects.length === 0 ? {} : { projects }
  return { kind: 'person', body: { name: '', scope: form.scope, ...bound } }
}

function jobRequest(form: TokenForm, faults: TokenFaults): TokenRequest {
  const [project = '', run = '', ...rest] = form.run.trim().split('/')
  if (!isName(project) || !isName(run) || rest.length > 0) faults.run = 'Name a run as project/run.'
  if (form.scope !== 'read' && form.scope !== 'write') faults.scope = 'A token for a job reads, or reads and writes.'
  const scope = form.scope === 'read' ? 'read' : 'write'
  return { kind: 'job', body: { name: '', project, run, scope, expires_in_seconds: 86_400 } }
}

function readLifetime(text: string, faults: TokenFaults): number {
  const seconds = readDuration(text)
  if (seconds !== undefined && seconds >= 1 && seconds <= LONGEST_SECONDS) return seconds
  faults.expiresIn = 'Write a duration such as 90d or 12h, of ten years at most, or leave it empty.'
  return 1
}
