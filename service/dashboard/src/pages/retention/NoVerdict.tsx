import type { ReactNode } from 'react'
import type { Place } from '../../api/retention'
import { Empty } from '../../components/Empty'
import { placeText } from './rules'
import type { WhyNone } from './verdicts'

/** Why a plan lists no verdict. */
export function NoVerdict({ why, place }: { why: WhyNone; place: Place }): ReactNode {
  switch (why) {
    case 'not listed':
      return <Empty title="None of these is listed">There are more verdicts than one answer lists: ask about one run.</Empty>
    case 'none like that':
      return <Empty title="No checkpoint is like that" />
    case 'none judged':
      return (
        <Empty title="No checkpoint is judged" command={`shardkeep retention dry-run ${placeText(place)} --keep-last 3`}>
          Without a policy everything is kept; and what is not committed is no candidate.
        </Empty>
      )
  }
}
