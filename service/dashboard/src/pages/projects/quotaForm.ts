import type { Message } from '../../api/client'
import { readSize, writeSize } from '../../format/sizeText'

/** What the two fields hold; empty is no limit. */
export interface QuotaForm {
  bytes: string
  checkpoints: string
}

export type QuotaFaults = Partial<Record<keyof QuotaForm, string>>

export function quotaFormOf(quota: Pick<Message<'QuotaInfo'>, 'max_bytes' | 'max_checkpoints'>): QuotaForm {
  return {
    bytes: quota.max_bytes === null ? '' : writeSize(quota.max_bytes),
    checkpoints: quota.max_checkpoints === null ? '' : String(quota.max_checkpoints),
  }
}

/** Both limits, or what is wrong with the fields. */
export function readQuotaForm(
  form: QuotaForm,
): { limits: Message<'SetQuota'>; faults?: never } | { limits?: never; faults: QuotaFaults } {
  const faults: QuotaFaults = {}
  const bytes = form.bytes.trim() === '' ? null : readSize(form.bytes)
  if (bytes === undefined) faults.bytes = 'Write a size such as 10TB, 512GiB or 1000, or leave it empty.'
  const checkpoints = form.checkpoints.trim() === '' ? null : readCount(form.checkpoints)
  if (checkpoints === undefined) faults.checkpoints = 'Give a whole number, or leave it empty.'
  if (bytes === undefined || checkpoints === undefined) return { faults }
  return { limits: { max_bytes: bytes, max_checkpoints: checkpoints } }
}

/** Whether what is used already passes a limit: what is stored stays, and nothing more is taken. */
export function isBelowUse(limits: Message<'SetQuota'>, quota: Message<'QuotaInfo'>): boolean {
  const { max_bytes: bytes = null, max_checkpoints: checkpoints = null } = limits
  return (bytes !== null && bytes < quota.used_bytes) || (checkpoints !== null && checkpoints < quota.used_checkpoints)
}

function readCount(text: string): number | undefined {
  return /^\d{1,15}$/.test(text.trim()) ? Number(text) : undefined
}
