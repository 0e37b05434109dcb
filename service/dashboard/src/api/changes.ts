import { CHECKPOINTS_KEY } from './checkpoints'
import { PROJECTS_KEY } from './projects'
import { QUOTAS_KEY } from './quotas'
import { RETENTION_KEY } from './retention'
import { RUNS_KEY } from './runs'
import { SAVES_KEY } from './saves'

const OVERVIEW_KEY = ['overview'] as const
const INTEGRITY_KEY = ['integrity'] as const

/** What a change of one checkpoint makes out of date. What no page shows is only marked: nothing is asked for it. */
export const CHECKPOINT_CHANGED = [
  CHECKPOINTS_KEY,
  RUNS_KEY,
  SAVES_KEY,
  RETENTION_KEY,
  OVERVIEW_KEY,
  PROJECTS_KEY,
  QUOTAS_KEY,
  INTEGRITY_KEY,
] as const

/** The same for a run, with which all its checkpoints go and come back. */
export const RUN_CHANGED = CHECKPOINT_CHANGED

/** The same for a project, with which all its runs do. */
export const PROJECT_CHANGED = RUN_CHANGED
