/** How many modal dialogs are open: beside them nothing is seen or read out. */
let open = 0
const waiting = new Set<() => void>()

/** Counts a dialog in; call what it returns once it is closed. */
export function dialogOpened(): () => void {
  open += 1
  return () => {
    open -= 1
    // Later, for another one may open in its place.
    setTimeout(goOn)
  }
}

/** Does it at once, or as soon as no dialog is open any more. */
export function onceNoneIsOpen(act: () => void): void {
  if (open === 0) act()
  else waiting.add(act)
}

function goOn(): void {
  if (open > 0) return
  const acts = [...waiting]
  waiting.clear()
  for (const act of acts) act()
}
