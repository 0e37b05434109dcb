import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

// The service of a developer, which `npm run dev` sends the API's requests to.
// The Host header stays that of the page, so that the service takes its requests for the dashboard's own.
const service = process.env.SHARDKEEP_URL ?? 'http://127.0.0.1:8080'

export default defineConfig({
  base: '/ui/',
  plugins: [react()],
  build: {
    outDir: '../shardkeep_service/ui/static',
    emptyOutDir: true,
    target: 'es2022',
    // The content security policy allows no inline script or style, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // Libraries change less often than the pages: a browser keeps their file.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'libraries', test: /node_modules/ }] } } },
  },
  server: { proxy: { '/v1': { target: service, changeOrigin: false } } },
  // A test that hangs is ended; a busy machine may take its time.
  test: { include: ['src/**/*.test.{ts,tsx}'], restoreMocks: true, testTimeout: 60_000 },
})
