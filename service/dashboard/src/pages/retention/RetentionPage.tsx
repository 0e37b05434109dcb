import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { policyQuery, type Place } from '../../api/retention'
import { Loaded } from '../../components/Loaded'
import { Page } from '../../components/Page'
import { ApplyButton } from './ApplyButton'
import { DryRunPanel } from './DryRunPanel'
import { EditorPanel } from './EditorPanel'
import { PlacePicker } from './PlacePicker'
import { PolicyPanel } from './PolicyPanel'
import { canonical, OFF_LINE_SECONDS, placeText } from './rules'

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
      <Loaded query={policy}>
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
            />
            <DryRunPanel place={place} subject={dry} rules={dry === 'edited' ? tried : undefined} />
          </>
        )}
      </Loaded>
    </Page>
  )
}
