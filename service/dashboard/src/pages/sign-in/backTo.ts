/** The address within the dashboard to go back to: never one elsewhere, and never the sign-in page itself. */
export function backTo(back: string | undefined): string {
  if (back === undefined) return '/'
  const base = 'http://dashboard.invalid'
  let url: URL
  try {
    url = new URL(back, base)
  } catch {
    return '/'
  }
  if (url.origin !== base || !back.startsWith('/') || url.pathname.startsWith('/sign-in')) return '/'
  return url.pathname.startsWith('//') ? '/' : url.pathname + url.search
}
