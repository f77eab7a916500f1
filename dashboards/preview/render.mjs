#!/usr/bin/env node
// Draws dashboards as Grafana would and says what is wrong with them.
//
//   node render.mjs --jobs FILE|-
//   node render.mjs --dashboard FILE --out PNG [options of one job, see below]
//
// A job list is a JSON array of objects; on the command line the names have dashes:
//   dashboard (file), out (PNG), prometheus (URL), theme (dark|light), width, from, to,
//   vars {name: value or [values]} (--var n=v), kiosk, scrapeInterval (seconds),
//   bottom (pixels from the top to keep of the picture),
//   datasource {uid: name} (--datasource uid=name), timezone, scale,
//   requireData (an empty panel is an error), allowEmpty [title or id] (--allow-empty T),
//   allow [code] (codes that are no errors, --allow CODE).
// Prints the report (with --jobs: an array of them, in the same order), or writes it to
// --report FILE.
// Exit status: 0 no errors, 1 errors in a report, 2 the tool itself failed.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { Chromium } from './chromium.mjs';
import { PreviewServer } from './server.mjs';

const AT_ONCE = 2;
const FIRST_HEIGHT = 3000;
const text = { type: 'string' };
const texts = { type: 'string', multiple: true };
const flag = { type: 'boolean' };
const OPTIONS = {
  jobs: text,
  report: text,
  dashboard: text,
  prometheus: text,
  from: text,
  to: text,
  width: text,
  theme: text,
  out: text,
  var: texts,
  datasource: texts,
  'scrape-interval': text,
  timezone: text,
  scale: text,
  bottom: text,
  kiosk: flag,
  'require-data': flag,
  'allow-empty': texts,
  allow: texts,
  chromium: { type: 'string', default: 'chromium' },
  timeout: { type: 'string', default: '60' },
};

function pairs(list, join) {
  const result = {};
  for (const pair of list ?? []) {
    const cut = pair.indexOf('=');
    const [key, value] = cut < 0 ? [pair, pair] : [pair.slice(0, cut), pair.slice(cut + 1)];
    result[key] = join && key in result ? [].concat(result[key], value) : value;
  }
  return result;
}

function jobOfArguments(args) {
  if (!args.dashboard) throw new Error('give --dashboard FILE or --jobs FILE');
  return {
    ...args,
    vars: pairs(args.var, true),
    datasource: args.datasource && pairs(args.datasource),
    scrapeInterval: args['scrape-interval'],
    requireData: args['require-data'],
    allowEmpty: args['allow-empty'],
  };
}

function readDashboard(file) {
  const read = JSON.parse(readFileSync(file, 'utf8'));
  return read.dashboard?.panels ? read.dashboard : read;
}

function pageConfig(id, job, dashboard) {
  const datasource = job.datasource ?? { prometheus: 'Prometheus' };
  return {
    id,
    dashboard,
    from: String(job.from ?? dashboard.time?.from ?? 'now-1h'),
    to: String(job.to ?? dashboard.time?.to ?? 'now'),
    width: Number(job.width ?? 1600),
    theme: job.theme ?? 'dark',
    vars: job.vars ?? {},
    kiosk: Boolean(job.kiosk),
    timezone: job.timezone,
    scrape: Number(job.scrapeInterval ?? 15),
    datasources: Object.entries(datasource).map(([uid, name]) => ({
      uid,
      name,
      type: 'prometheus',
    })),
  };
}

/** What the job asks for beyond what is always wrong. */
function judge(job, result) {
  const allowed = new Set(job.allow ?? []);
  const mayBeEmpty = new Set((job.allowEmpty ?? []).map(String));
  const issues = [...result.issues];
  for (const panel of result.panels) {
    const known = mayBeEmpty.has(String(panel.id)) || mayBeEmpty.has(panel.panel);
    if (job.requireData && panel.empty && !known) {
      const { panel: title, id, type } = panel;
      const message = 'no data where there has to be some';
      const code = 'empty-panel';
      issues.push({ severity: 'error', panel: title, id, type, code, message });
    }
  }
  const isError = (issue) => issue.severity === 'error' && !allowed.has(issue.code);
  return {
    errors: issues.filter(isError),
    warnings: issues.filter((issue) => !isError(issue)),
  };
}

async function waitUntilDrawn(page, deadline) {
  for (;;) {
    const result = await page.evaluate('window.previewResult ?? null');
    if (result) return result;
    if (Date.now() > deadline) throw new Error('the page was not drawn in time');
    await delay(30);
  }
}

async function draw(chromium, server, id, job, timeoutMs) {
  const started = Date.now();
  const config = pageConfig(id, job, readDashboard(job.dashboard));
  const url = server.add(id, config, job.prometheus ?? 'http://127.0.0.1:9090');
  const page = await chromium.newPage();
  try {
    const scale = Number(job.scale ?? 1);
    await page.resize(config.width, FIRST_HEIGHT, scale);
    await page.open(url);
    const { height } = await waitUntilDrawn(page, started + timeoutMs);
    await page.resize(config.width, height, scale);
    const result = await page.evaluate('window.finishPreview()');
    const out = job.out ?? 'dashboard.png';
    mkdirSync(path.dirname(path.resolve(out)), { recursive: true });
    writeFileSync(out, await page.picture(config.width, job.bottom && Number(job.bottom)));
    const { errors, warnings } = judge(job, result);
    return {
      ok: errors.length === 0,
      dashboard: job.dashboard,
      title: config.dashboard.title,
      out,
      theme: config.theme,
      width: config.width,
      seconds: (Date.now() - started) / 1000,
      errors,
      warnings,
      variables: result.variables,
      annotations: result.annotations,
      panels: result.panels,
      console: page.consoleLines,
      missingFiles: server.remove(id),
    };
  } finally {
    await page.close().catch(() => {});
  }
}

async function drawAll(jobs, chromium, server, timeoutMs) {
  const reports = new Array(jobs.length);
  let next = 0;
  const worker = async () => {
    while (next < jobs.length) {
      const index = next++;
      try {
        reports[index] = await draw(chromium, server, index, jobs[index], timeoutMs);
      } catch (error) {
        throw new Error(`${jobs[index].dashboard}: ${error.message}`, { cause: error });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return reports;
}

async function main() {
  const { values: args } = parseArgs({ options: OPTIONS });
  const jobs = args.jobs
    ? JSON.parse(readFileSync(args.jobs === '-' ? 0 : args.jobs, 'utf8'))
    : [jobOfArguments(args)];
  const server = new PreviewServer();
  await server.start();
  const chromium = new Chromium(args.chromium);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.once(signal, () => chromium.stop().finally(() => process.exit(2)));
  }
  try {
    const reports = await drawAll(jobs, chromium, server, Number(args.timeout) * 1000);
    const printed = `${JSON.stringify(args.jobs ? reports : reports[0], null, 1)}\n`;
    if (args.report) writeFileSync(args.report, printed);
    else process.stdout.write(printed);
    return reports.every((report) => report.ok) ? 0 : 1;
  } finally {
    await chromium.stop();
    server.stop();
  }
}

process.exitCode = await main().catch((error) => {
  console.error(`preview: ${error.message}`);
  return 2;
});
