import js from '@eslint/js'
import a11y from 'eslint-plugin-jsx-a11y'
import hooks from 'eslint-plugin-react-hooks'
import globals from 'globals'
import { defineConfig, globalIgnores } from 'eslint/config'
import tseslint from 'typescript-eslint'

export default defineConfig(
  globalIgnores(['src/api/schema.d.ts', 'node_modules', 'dist']),
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  hooks.configs.flat.recommended,
  a11y.flatConfigs.strict,
  {
    languageOptions: {
      globals: globals.browser,
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // Links and routes refer to the router's type, which is made of the components: without a written return type
      // that is a circle.
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      // Numbers in text are what this application is about.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // The router's `redirect` is thrown, by its design.
      '@typescript-eslint/only-throw-error': [
        'error',
        { allow: [{ from: 'package', package: '@tanstack/router-core', name: 'Redirect' }] },
      ],
      // A region that scrolls must be in reach of the keyboard.
      'jsx-a11y/no-noninteractive-tabindex': ['error', { roles: ['tabpanel', 'region'] }],
      'no-restricted-syntax': [
        'error',
        {
          selector: 'JSXAttribute[name.name="dangerouslySetInnerHTML"]',
          message: 'Text from the server is shown as text only.',
        },
      ],
    },
  },
  {
    // A query's type is made of its key and its answer: written out it says nothing more.
    files: ['src/api/**'],
    rules: { '@typescript-eslint/explicit-module-boundary-types': 'off' },
  },
  { files: ['*.js'], extends: [tseslint.configs.disableTypeChecked] },
)
