"""What can be wrong with how a page is laid out, measured in the browser."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from playwright.sync_api import Page

_MEASURE: Final = """
async () => {
  // What is drawn by the width it got is drawn anew once that is known.
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  const faults = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) {
    const wide = [...document.body.querySelectorAll('*')].filter(one => shown(one).right > page.clientWidth + 1);
    const first = wide.length ? name(wide.at(-1)) : 'unknown';
    faults.push(`the page is ${page.scrollWidth} px wide in a window of ${page.clientWidth}: ${first}`);
  }

  function name(one) {
    const text = (one.getAttribute('aria-label') || one.textContent || one.getAttribute('name') || '').trim();
    return `<${one.tagName.toLowerCase()}> "${text.replace(/\\s+/g, ' ').slice(0, 40)}"`;
  }

  // The part of an element's box that its scrolling or clipping ancestors let be seen.
  function shown(one) {
    let {left, top, right, bottom} = one.getBoundingClientRect();
    for (let up = one.parentElement; up && up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflow === 'visible') continue;
      const box = up.getBoundingClientRect();
      left = Math.max(left, box.left); right = Math.min(right, box.right);
      top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom);
    }
    return {left, top, right, bottom};
  }

  function isSeen(one) {
    const style = getComputedStyle(one);
    const box = shown(one);
    return one.checkVisibility({opacityProperty: true, visibilityProperty: true}) && style.clipPath === 'none'
      && box.right - box.left > 2 && box.bottom - box.top > 2;
  }

  // Behind an open dialog nothing can be used.
  const scope = document.querySelector('dialog[open]') || document.body;
  const controls = [...scope.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
    .filter(isSeen);

  for (const one of controls) {
    const style = getComputedStyle(one);
    const cuts = style.overflowX !== 'visible' && style.textOverflow !== 'ellipsis';
    const tall = style.overflowY !== 'visible' && one.scrollHeight > one.clientHeight + 2;
    const button = one.matches('button, a, summary') && style.display !== 'inline';
    if (button && ((cuts && one.scrollWidth > one.clientWidth + 2) || tall)) faults.push(`${name(one)} is cut off`);
    if (button && one.scrollWidth > one.clientWidth + 2 && style.overflowX === 'visible')
      faults.push(`the text of ${name(one)} sticks out of it`);
  }

  for (const one of document.querySelectorAll('main td, main th')) {
    const box = one.getBoundingClientRect();
    if (one.textContent.trim().length > 12 && box.height > 2 * box.width)
      faults.push(`${name(one)} is ${Math.round(box.width)} px wide and ${Math.round(box.height)} px high`);
  }
  for (const one of document.querySelectorAll('[role=tab][aria-selected=true]')) {
    const box = one.getBoundingClientRect(), seen = shown(one);
    if (seen.right - seen.left < box.width - 2) faults.push(`the selected tab ${name(one)} is out of sight`);
  }

  for (let i = 0; i < controls.length; i++) for (let j = i + 1; j < controls.length; j++) {
    const [a, b] = [controls[i], controls[j]];
    if (a.contains(b) || b.contains(a) || isAbove(a) !== isAbove(b)) continue;
    // Lines of a wrapped link have boxes of their own.
    for (const x of boxes(a)) for (const y of boxes(b)) {
      const wide = Math.min(x.right, y.right) - Math.max(x.left, y.left);
      const high = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
      if (wide > 2 && high > 2)
        faults.push(`${name(a)} and ${name(b)} overlap by ${Math.round(wide)}x${Math.round(high)} px`);
    }
  }

  function boxes(one) {
    const seen = shown(one);
    return [...one.getClientRects()].map(box => ({
      left: Math.max(box.left, seen.left), right: Math.min(box.right, seen.right),
      top: Math.max(box.top, seen.top), bottom: Math.min(box.bottom, seen.bottom),
    })).filter(box => box.right - box.left > 2 && box.bottom - box.top > 2);
  }

  // What sticks to the window lies over what scrolls.
  function isAbove(one) {
    for (let up = one; up; up = up.parentElement)
      if (['fixed', 'sticky'].includes(getComputedStyle(up).position)) return true;
    return false;
  }

  return faults;
}
"""

_LEVELS: Final = """
() => [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(one => one.checkVisibility())
  .map(one => Number(one.tagName[1]))
"""


def layout_faults(page: Page) -> list[str]:
    """A page wider than its window, controls that lie over one another, controls whose text is cut off, texts that are
    broken to slivers, and selected tabs that are out of sight.
    """
    found: list[str] = page.evaluate(_MEASURE)
    return found


def heading_faults(page: Page) -> list[str]:
    """Anything but one h1, and headings that skip a level."""
    levels: list[int] = page.evaluate(_LEVELS)
    faults = [] if levels.count(1) == 1 else [f"there are {levels.count(1)} h1"]
    for before, after in pairwise(levels):
        if after > before + 1:
            faults.append(f"an h{after} comes after an h{before}")
    return faults
