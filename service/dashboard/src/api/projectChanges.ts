import { answer, api, ifMatch, type Message } from './client'

export function createProject(name: string): Promise<Message<'ProjectInfo'>> {
  return answer(api.POST('/v1/projects', { body: { name } }))
}

/** Deletes a project with its runs, restorably; `force` also while they are saved to or hold pinned checkpoints. */
export function deleteProject(project: Message<'ProjectInfo'>, force: boolean): Promise<Message<'ProjectInfo'>> {
  const params = { path: { project: project.id }, query: { force }, header: ifMatch(project.version) }
  return answer(api.DELETE('/v1/projects-by-id/{project}', { params }))
}

export function restoreProject(project: Message<'ProjectInfo'>, name: string | null): Promise<Message<'ProjectInfo'>> {
  const params = { path: { project: project.id }, header: ifMatch(project.version) }
  return answer(api.POST('/v1/projects-by-id/{project}/restore', { params, body: { name } }))
}
