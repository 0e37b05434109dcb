import type { ReactNode } from 'react'
import figure from './Figure.module.css'
import { shareOf } from './heatCells'
import styles from './RankHeatMap.module.css'
import { LEVEL_RATIOS } from './rankTimes'

const WIDTH = 18
const HEIGHT = 10

/** What the looks of cells mean. */
export function RankLegend(): ReactNode {
  return (
    <ul className={figure.legend}>
      {['as usual', ...LEVEL_RATIOS.map((least) => `from ${least}× the median`)].map((text, level) => (
        <li key={text}>
          <svg width={WIDTH} height={HEIGHT} aria-hidden="true">
            <rect
              x={(WIDTH - WIDTH * shareOf(level)) / 2}
              width={WIDTH * shareOf(level)}
              height={HEIGHT}
              className={styles[`level${level}`]}
            />
          </svg>
          {text}
        </li>
      ))}
      <li>
        <svg width={WIDTH} height={HEIGHT} aria-hidden="true">
          <path d={`M1 1h16v8H1zM1 1l16 8M1 9l16 -8`} className={styles.missing} />
        </svg>
        never arrived
      </li>
      <li>
        <svg width={WIDTH} height={HEIGHT} aria-hidden="true">
          <path d="M1 1h16v8H1z" className={styles.waiting} />
        </svg>
        not there yet
      </li>
    </ul>
  )
}
