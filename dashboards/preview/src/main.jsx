// One drawing: reads its configuration, asks Prometheus, draws, and tells what is wrong.
import { ThemeContext, createTheme, dateMath, dateTime } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { GlobalStyles } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { runAnnotations } from './annotations.js';
import { CELL, GAP, layOut } from './layout.js';
import { measurePanels } from './measure.js';
import { Page } from './page.jsx';
import { setUpRegistries } from './plugins.js';
import { datasourceCheck, preparePanel } from './prepare.js';
import { Prometheus } from './prometheus.js';
import { Variables } from './variables.js';

const OLDEST_SCHEMA = 36;
const QUIET_MS = 120;
const NEVER_QUIET_MS = 4000;

const issues = [];
const records = [];

/** Reports faults of one place, each once. */
const issueFor =
  (where) =>
  (code, message, severity = 'error') => {
    const same = (issue) =>
      issue.id === where.id &&
      issue.panel === where.panel &&
      issue.code === code &&
      issue.message === message;
    if (!issues.some(same)) issues.push({ severity, ...where, code, message });
  };
const dashboardIssue = issueFor({ panel: null, id: null, type: null });

function checkDashboard(dashboard) {
  const version = dashboard.schemaVersion ?? 0;
  if (version < OLDEST_SCHEMA) {
    const message = `schemaVersion ${version}: Grafana migrates it, this preview hardly does`;
    dashboardIssue('old-schema', message, 'warning');
  }
  if (dashboard.rows?.length) dashboardIssue('old-rows', 'has rows[] (schema < 16)');
  const idsOf = (panels) => (panels ?? []).flatMap(({ id, panels: own }) => [id, ...idsOf(own)]);
  const ids = idsOf(dashboard.panels);
  const given = ids.filter(Boolean);
  if (given.length < ids.length) dashboardIssue('panel-id-missing', 'some panels have no id');
  if (new Set(given).size < given.length) {
    dashboardIssue('panel-id-duplicate', JSON.stringify(ids));
  }
}

/** Until nothing in the page has changed for a moment. */
function quiet() {
  return new Promise((done) => {
    const finish = () => {
      observer.disconnect();
      clearTimeout(limit);
      requestAnimationFrame(() => requestAnimationFrame(done));
    };
    let timer = setTimeout(finish, QUIET_MS);
    const limit = setTimeout(finish, NEVER_QUIET_MS);
    const observer = new MutationObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(finish, QUIET_MS);
    });
    const all = { subtree: true, childList: true, attributes: true, characterData: true };
    observer.observe(document.documentElement, all);
  });
}

function timeZoneOf(config, dashboard) {
  const own = dashboard.timezone === 'browser' ? '' : dashboard.timezone;
  return config.timezone || own || 'utc';
}

/** A moment as Grafana's URLs have it: milliseconds, ISO 8601 or relative to now. */
function moment(text, roundUp, timeZone) {
  if (/^\d+$/.test(text)) return dateTime(Number(text));
  const parsed = dateMath.parse(text, roundUp, timeZone);
  if (!parsed?.isValid()) throw new Error(`cannot read the time ${JSON.stringify(text)}`);
  return parsed;
}

async function environment(config, dashboard) {
  const theme = createTheme({ colors: { mode: config.theme } });
  const timeZone = timeZoneOf(config, dashboard);
  const range = {
    from: moment(config.from, false, timeZone),
    to: moment(config.to, true, timeZone),
    raw: { from: config.from, to: config.to },
  };
  const prometheus = new Prometheus(`/prom/${config.id}`);
  const vars = new Variables(dashboard.templating?.list ?? [], {
    range,
    prometheus,
    datasources: config.datasources,
    overrides: config.vars,
    issue: dashboardIssue,
  });
  await vars.load();
  const rangeParameters = `from=${range.from.valueOf()}&to=${range.to.valueOf()}`;
  return {
    config,
    theme,
    timeZone,
    range,
    prometheus,
    vars,
    schemaVersion: dashboard.schemaVersion ?? 0,
    issue: dashboardIssue,
    checkDatasource: datasourceCheck(vars, config.datasources, dashboardIssue),
    globals: {
      __dashboard: { value: dashboard.title },
      __org: { value: 'Main Org.' },
      __user: { value: 'admin' },
      __timezone: { value: timeZone },
      __url_time_range: { value: rangeParameters },
    },
  };
}

async function prepareAll(items, env) {
  const prepare = async (item) => {
    try {
      return await preparePanel(item, env, issueFor);
    } catch (error) {
      const { title, id, type } = item.panel;
      issueFor({ panel: title, id, type })('preview-error', String(error.stack ?? error));
      return null;
    }
  };
  return (await Promise.all(items.map(prepare))).filter(Boolean);
}

async function main() {
  const id = new URLSearchParams(window.location.search).get('job');
  const config = await (await fetch(`/config/${id}`)).json();
  const { dashboard } = config;
  window.__grafana_public_path__ = '/public/';
  await initPluginTranslations('grafana').catch(() => {});
  setUpRegistries();
  // A canvas draws with what is there: all characters that the dashboard can ask for.
  const characters = JSON.stringify(dashboard);
  await Promise.all(
    ['400 14px Inter', '500 14px Inter'].map((font) => document.fonts.load(font, characters)),
  );
  checkDashboard(dashboard);
  const env = await environment(config, dashboard);
  const items = layOut(dashboard, env.vars, issueFor);
  const [annotations, panels] = await Promise.all([
    runAnnotations(dashboard, env),
    prepareAll(items, env),
  ]);
  env.annotations = annotations;
  records.push(...panels.map(({ record }) => record));
  const height = Math.max(1, ...items.map(({ y, h }) => y + h)) * (CELL + GAP);
  document.documentElement.style.background = env.theme.colors.background.canvas;
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={env.theme}>
      <GlobalStyles />
      <Page {...{ env, panels, dashboard, height }} />
    </ThemeContext.Provider>,
  );
  await document.fonts.ready;
  await quiet();
  const names = env.vars.list.map(({ name }) => name);
  const result = () => ({
    issues,
    panels: records,
    annotations: annotations.map(({ record }) => record),
    variables: Object.fromEntries(names.map((name) => [name, env.vars.values(name)])),
    height: Math.ceil(document.querySelector('[data-page]').getBoundingClientRect().height),
  });
  window.finishPreview = async () => {
    await quiet();
    measurePanels(panels);
    return result();
  };
  window.previewResult = result();
}

main().catch((error) => {
  dashboardIssue('preview-error', String(error.stack ?? error));
  const result = { issues, panels: records, annotations: [], variables: {}, height: 400 };
  window.finishPreview = () => result;
  window.previewResult = result;
});
