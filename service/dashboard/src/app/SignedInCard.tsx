import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { reach } from '../api/scopes'
import { signedInQuery, signOut } from '../api/signIn'
import { useAnnounce } from '../components/announce'
import { Button } from '../components/Button'
import { ProblemNotice } from '../components/ProblemNotice'
import { When } from '../components/When'
import styles from './SignedInCard.module.css'
import { useSignedIn } from './signedIn'

/** Who is signed in, what they reach, until when, and the way out. */
export function SignedInCard(): ReactNode {
  const { token, expires_at: expiresAt } = useSignedIn()
  const queryClient = useQueryClient()
  const navigate = useNavigate()
  const [error, setError] = useState<unknown>(null)
  useNewReader()

  const leave = async (): Promise<void> => {
    try {
      await signOut()
    } catch (failure) {
      setError(failure)
      return
    }
    // First who is signed in, or the sign-in page would send a reader it takes for signed in back here.
    queryClient.setQueryData(signedInQuery.queryKey, null)
    await navigate({ to: '/sign-in' })
    // Nothing of what this reader saw is left to the next one.
    queryClient.clear()
  }

  return (
    <section aria-label="Signed in" className={styles.card}>
      <p className={styles.name} title={token.id}>
        {token.name}
      </p>
      <p className={styles.scope}>
        {token.scope} · {reach(token)}
      </p>
      <p className={styles.scope}>
        ends <When time={expiresAt} />
      </p>
      <Button onClick={() => void leave()}>Sign out</Button>
      {error !== null && <ProblemNotice error={error} />}
    </section>
  )
}

/** Says it where another tab signed in with another token: the cookie is the browser's, so that this page is that reader's too. */
function useNewReader(): void {
  const announce = useAnnounce()
  const { id, name } = useSignedIn().token
  const known = useRef(id)
  useEffect(() => {
    if (known.current !== id) announce(`In another tab “${name}” signed in: this page is theirs now, and nothing was changed.`)
    known.current = id
  }, [announce, id, name])
}
