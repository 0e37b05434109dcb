import { createLink } from '@tanstack/react-router'
import type { ComponentPropsWithRef, ReactNode } from 'react'
import { classes } from './classes'
import type { ButtonKind } from './Button'
import styles from './Button.module.css'

interface AnchorProps extends Omit<ComponentPropsWithRef<'a'>, 'className'> {
  kind?: ButtonKind
}

function Anchor({ kind = 'plain', children, ...rest }: AnchorProps): ReactNode {
  return (
    <a {...rest} className={classes(styles.button, styles[kind])}>
      {children}
    </a>
  )
}

/** A link to a page that looks like a button: `<LinkButton to="/runs" search={{…}}>`. */
export const LinkButton = createLink(Anchor)
