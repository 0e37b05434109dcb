import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { policyQuery, type Place } from '../../api/retention'
import { without } from '../../app/searchParams'
import { Guarded } from '../../components/Guarded'
import { Page } from '../../components/Page'
import { ApplyButton } from './ApplyButton'
import { DryRunPanel } from './DryRunPanel'
import { EditorPanel } from './EditorPanel'
import { PlacePicker } from './PlacePicker'
import { PolicyPanel } from './PolicyPanel'
import { canonical, OFF_LINE_SECONDS, placeText } from './rules'
import type { RetentionSearch } from './search'

/** The retention policy of a project, or of one of its runs: what is in force, trying out another, setting it. */
export function RetentionPage(): ReactNode {
  const { project } = useParams({ from: '/shell/retention/$project' })
  const { run, rules, dry } = useSearch({ from: '/shell/retention/$project' })
  const navigate = useNavigate({ from: '/retention/$project' })
  const place: Place = run === undefined ? { project } : { project, run }
  const policy = useQuery(policyQuery(place))
  const tried = rules === undefined ? undefined : { off_line_seconds: OFF_LINE_SECONDS, ...rules }
  return (
    <Page
      title={`Retention of ${placeText(place)}`}
      crumbs={[
        <Link key="projects" to="/projects">
          Projects
        </Link>,
        <Link key="project" to="/runs" search={{ project }}>
          {project}
        </Link>,
      ]}
      actions={policy.data && <ApplyButton place={place} answer={policy.data} />}
    >
      <PlacePicker
        place={place}
        onPick={(picked) => void navigate({ search: picked === undefined ? {} : { run: picked } })}
      />
      <Guarded query={policy} scope="read" reaching="projects">
        {(answer) => (
          <>
            <PolicyPanel place={place} answer={answer} />
            <EditorPanel
              key={placeText(place)}
              place={place}
              answer={answer}
              tried={tried}
              onTry={(wanted) =>
                void navigate({
                  search: ({ run: same }) => ({
                    ...(same === undefined ? {} : { run: same }),
                    dry: 'edited',
                    rules: canonical(wanted),
                  }),
                  resetScroll: false,
                })
              }
              onDiscard={() =>
                void navigate({ search: (before) => discarded(before), resetScroll: false })
              }
            />
            <DryRunPanel place={place} subject={dry} rules={dry === 'edited' ? tried : undefined} />
          </>
        )}
      </Guarded>
    </Page>
  )
}

/** The address without rules that are edited no longer; a dry run of what is in force stays. */
function discarded(search: RetentionSearch): RetentionSearch {
  return search.dry === 'edited' ? without(search, 'rules', 'dry', 'show', 'page') : without(search, 'rules')
}
