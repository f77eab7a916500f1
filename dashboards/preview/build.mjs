// src/ and Grafana's packages -> dist/, what the browser is given.
import { build } from 'esbuild';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

// Editors and maps are most of @grafana/ui's weight, and no panel here uses them.
const stub = {
  name: 'stub',
  setup(builder) {
    builder.onResolve({ filter: /^(monaco-editor|react-monaco-editor|ol)(\/|$)/ }, () => ({
      path: 'stub',
      namespace: 'stub',
    }));
    builder.onLoad({ filter: /.*/, namespace: 'stub' }, () => ({
      contents: 'module.exports = {}',
      loader: 'js',
    }));
  },
};

const FACES = [
  [400, 'Regular'],
  [500, 'Medium'],
];
const fontFace = ([weight, name]) =>
  `@font-face{font-family:Inter;font-weight:${weight};` +
  `src:url(/public/fonts/inter/Inter-${name}.woff2) format("woff2")}`;
// Chinese characters, in pieces that the browser loads as it needs them. Under Inter's own name,
// because Grafana asks for no other family, on canvases neither; and once for each of its weights,
// because a browser puts together only faces of one weight.
const CHINESE = 'node_modules/@fontsource-variable/noto-sans-sc';
const chinesePieces = readFileSync(`${CHINESE}/index.css`, 'utf8')
  .replaceAll("'Noto Sans SC Variable'", 'Inter')
  .replaceAll('./files/', '/public/fonts/chinese/');
const chineseFaces = FACES.map(([weight]) => chinesePieces.replaceAll('100 900', weight)).join('');
const PAGE = [
  '<!doctype html><meta charset=utf-8><title>preview</title><link rel=icon href=data:,>',
  '<link rel=stylesheet href=/main.css>',
  `<style>${chineseFaces}${FACES.map(fontFace).join('')}</style>`,
  '<body style="margin:0"><div id=root></div><script type=module src=/main.js></script>',
].join('\n');
// The name under which Grafana's global styles ask for Roboto Mono.
const MONO = 'L0xTDF4xlVMF-BfR8bXMIhJHg45mwgGEFl0_3vrtSM1J-gEPT5Ese6hmHSh0mQ.woff2';

rmSync('dist', { recursive: true, force: true });
for (const folder of ['build/img', 'fonts/inter', 'fonts/roboto']) {
  mkdirSync(`dist/public/${folder}`, { recursive: true });
}
await build({
  entryPoints: ['src/main.jsx'],
  outdir: 'dist',
  bundle: true,
  format: 'esm',
  splitting: true,
  minify: true,
  target: 'chrome110',
  jsx: 'automatic',
  define: {
    'process.env.NODE_ENV': '"production"',
    'process.env': '{}',
    global: 'globalThis',
  },
  plugins: [stub],
  loader: { '.woff2': 'file', '.woff': 'file', '.svg': 'text', '.ttf': 'file', '.png': 'file' },
  logLevel: 'warning',
  legalComments: 'linked',
});
const icons = 'public/img/icons';
cpSync(`node_modules/@grafana/ui/dist/${icons}`, 'dist/public/build/img/icons', {
  recursive: true,
});
for (const [weight, name] of FACES) {
  cpSync(
    `node_modules/@fontsource/inter/files/inter-latin-${weight}-normal.woff2`,
    `dist/public/fonts/inter/Inter-${name}.woff2`,
  );
}
cpSync(`${CHINESE}/files`, 'dist/public/fonts/chinese', { recursive: true });
cpSync(
  'node_modules/@fontsource/roboto-mono/files/roboto-mono-latin-400-normal.woff2',
  `dist/public/fonts/roboto/${MONO}`,
);
writeFileSync('dist/index.html', PAGE);
