import type { Message } from '../../api/client'

type Metrics = Message<'CheckpointSummary'>['metrics']

export interface MetricRow {
  name: string
  /** The mean over ranks, as the API writes it. */
  mean: number | string
  /** Rank 0's own, where there is more than one rank. */
  rank0: number | string | undefined
}

const RANK_0 = '@rank0'

/** Metrics by name, rank 0's beside the mean. */
export function metricRows(metrics: Metrics): MetricRow[] {
  return Object.entries(metrics)
    .filter(([name]) => !isRank0Of(name, metrics))
    .map(([name, mean]) => ({ name, mean, rank0: metrics[name + RANK_0] }))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
}

function isRank0Of(name: string, metrics: Metrics): boolean {
  return name.endsWith(RANK_0) && name.slice(0, -RANK_0.length) in metrics
}
