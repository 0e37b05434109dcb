import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { makeQueryClient } from './api/queryClient'
import './app/tokens.css'
import './app/base.css'
import { makeRouter } from './app/router'
import { applyTheme, chosenTheme } from './app/theme'

applyTheme(chosenTheme())

const queryClient = makeQueryClient()
const router = makeRouter(queryClient)
const root = document.getElementById('root')
if (root === null) throw new Error('index.html has no element with the id "root"')

createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
)
