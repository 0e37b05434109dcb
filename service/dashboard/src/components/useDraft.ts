import { useState } from 'react'

export interface Draft {
  text: string
  type: (text: string) => void
  /** The text was handed on: the address will hold it, which is no reason to change what was typed since. */
  sent: (text: string) => void
  /** Whether the text is what was handed on last, also while the address does not have it yet. */
  isSent: boolean
}

/** What is typed into a field whose value the address holds. Where the address changes by itself (back, a link), it says what the field holds. */
export function useDraft(value: string): Draft {
  const [text, type] = useState(value)
  const [seen, setSeen] = useState(value)
  const [handedOn, sent] = useState(value)
  if (seen !== value) {
    setSeen(value)
    // Addresses hold texts without the blanks around them.
    if (value !== handedOn.trim()) {
      type(value)
      sent(value)
    }
  }
  return { text, type, sent, isSent: text === handedOn }
}
