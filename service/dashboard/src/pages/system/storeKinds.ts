/** What the kinds of object stores are called. */
export const KINDS: Readonly<Record<string, string>> = {
  file_system: 'Directory',
  s3: 'S3',
  memory: 'Memory, lost with the process',
}
