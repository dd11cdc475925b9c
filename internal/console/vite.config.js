import { defineConfig } from 'vite';

// Paths are relative, so that the console also works behind a proxy with a path of its own. While one works on it,
// RINGLOG names a node to which the development server passes calls.
const node = process.env.RINGLOG ?? 'http://127.0.0.1:8770';

export default defineConfig({
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: { target: 'chrome123', modulePreload: false, assetsInlineLimit: 0, reportCompressedSize: false, sourcemap: false },
  server: {
    proxy: Object.fromEntries(['/v1', '/status', '/metrics', '/readyz'].map((path) => [path, { target: node, changeOrigin: true }])),
  },
});
