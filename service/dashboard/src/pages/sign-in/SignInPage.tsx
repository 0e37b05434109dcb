import { useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { signedInQuery, signIn } from '../../api/signIn'
import { Button } from '../../components/Button'
import { Icon } from '../../components/Icon'
import { ProblemNotice } from '../../components/ProblemNotice'
import { Snippet } from '../../components/Snippet'
import { TextField } from '../../components/TextField'
import { backTo } from './backTo'
import styles from './SignInPage.module.css'

/** Takes a token once; a cookie that scripts cannot read stands for it from then on. */
export function SignInPage(): ReactNode {
  const { back } = useSearch({ from: '/sign-in' })
  const queryClient = useQueryClient()
  const navigate = useNavigate()
  const [token, setToken] = useState('')
  const [pending, setPending] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    document.title = 'Sign in · Shardkeep'
    field.current?.focus()
  }, [])

  const enter = async (): Promise<void> => {
    setPending(true)
    setError(null)
    try {
      const signedIn = await signIn(token.trim())
      // Of whoever was signed in before, also where that sign-in ended by itself.
      queryClient.clear()
      queryClient.setQueryData(signedInQuery.queryKey, signedIn)
    } catch (failure) {
      setError(failure)
      setPending(false)
      return
    }
    await navigate({ href: backTo(back), replace: true })
  }

  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <p className={styles.brand}>
          <Icon name="stack" /> Shardkeep
        </p>
        <h1>Sign in</h1>
        <form
          className={styles.form}
          onSubmit={(event) => {
            event.preventDefault()
            if (!pending && token.trim() !== '') void enter()
          }}
        >
          <TextField
            ref={field}
            label="Token"
            type="password"
            value={token}
            onChange={setToken}
            required
            autoComplete="off"
            placeholder="shardkeep_…"
            hint="Used once, to sign in. This browser keeps a cookie in its place, and never the token."
          />
          <Button type="submit" kind="primary" pending={pending}>
            {pending ? 'Signing in…' : 'Sign in'}
          </Button>
        </form>
        {error !== null && <ProblemNotice error={error} />}
        <Help />
      </div>
    </main>
  )
}

function Help(): ReactNode {
  return (
    <section aria-labelledby="help" className={styles.help}>
      <h2 id="help">Where is my token?</h2>
      <p>
        The first start of the service left an admin token in the file <code>admin-token.json</code> of its data
        directory. On the service’s machine another one is made with
      </p>
      <Snippet text="shardkeep-service token create --scope admin" label="command" />
      <p>Anyone with an admin token makes one for you, of the scope you need:</p>
      <Snippet text="shardkeep token create --scope read" label="command" />
    </section>
  )
}
