/** What the filter offers: each noun, which stands for all its actions, and the actions themselves. */
export const ACTIONS: readonly string[] = [
  ...['project', 'project.create', 'project.delete', 'project.restore'],
  ...['run', 'run.create', 'run.delete', 'run.restore', 'run.request_save'],
  ...['attempt', 'attempt.begin', 'attempt.resume'],
  ...['checkpoint', 'checkpoint.open', 'checkpoint.commit', 'checkpoint.abort', 'checkpoint.delete'],
  ...['checkpoint.restore', 'checkpoint.pin', 'checkpoint.unpin', 'checkpoint.tag', 'checkpoint.untag'],
  ...['checkpoint.accept', 'checkpoint.quarantine', 'checkpoint.index_rebuild', 'checkpoint.purge'],
  ...['token', 'token.create', 'token.revoke', 'sign_in', 'sign_in.create', 'sign_in.delete'],
  ...['quota', 'quota.set', 'retention', 'retention.set', 'retention.clear'],
  ...['object', 'object.damaged', 'catalogue', 'catalogue.rebuild'],
]
