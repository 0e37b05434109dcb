/** The marks of an axis from 0 to `top`, which is the last of them and no less than the largest value. */
export interface Axis {
  top: number
  ticks: number[]
}

/** An axis of bytes: round in powers of 1,024, so that its labels are. */
export function byteAxis(largest: number, most = 4): Axis {
  return axis(largest, most, (rough) => {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(rough) / Math.log(1024)))
    return roundUp(rough / unit, [1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256, 512, 1024]) * unit
  })
}

/** An axis of seconds: round below a minute in tens, above it as clocks are. */
export function secondAxis(largest: number, most = 4): Axis {
  return axis(largest, most, (rough) => {
    if (rough < 10) {
      const unit = 10 ** Math.floor(Math.log10(rough))
      return roundUp(rough / unit, [1, 2, 5, 10]) * unit
    }
    const unit = rough <= 30 ? 1 : rough <= 1800 ? 60 : 3600
    return roundUp(rough / unit, [1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 500, 1000]) * unit
  })
}

function axis(largest: number, most: number, roundStep: (rough: number) => number): Axis {
  if (!(largest > 0) || !Number.isFinite(largest)) return { top: 1, ticks: [0] }
  const step = roundStep(largest / most)
  const count = Math.ceil(largest / step - 1e-9)
  return { top: count * step, ticks: Array.from({ length: count + 1 }, (_, index) => index * step) }
}

function roundUp(value: number, choices: readonly number[]): number {
  return choices.find((choice) => value <= choice * (1 + 1e-9)) ?? Math.ceil(value)
}
