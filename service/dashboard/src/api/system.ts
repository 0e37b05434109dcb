import { queryOptions } from '@tanstack/react-query'
import { answer, api } from './client'

export const systemQuery = queryOptions({
  queryKey: ['system'],
  queryFn: ({ signal }) => answer(api.GET('/v1/system', { signal })),
})
