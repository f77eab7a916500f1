// One panel's JSON -> what its drawing needs, and the faults that can be told before drawing.
import {
  applyFieldOverrides,
  dateMath,
  fieldMatchers,
  getFieldDisplayName,
  getPanelOptionsWithDefaults,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

import { pixelWidth } from './layout.js';
import { migratePanel, pluginFor, supportedTypes } from './plugins.js';
import { runTargets } from './prometheus.js';

const PANEL_PADDING = 16;
const DATASOURCES_WITHOUT_QUERY = /^-- (Mixed|Dashboard|Grafana) --$|^grafana$/;

function checkThresholds(panel, issue) {
  const thresholds = panel.fieldConfig?.defaults?.thresholds;
  const steps = thresholds?.steps;
  if (steps === undefined) return;
  if (!Array.isArray(steps)) {
    issue('bad-thresholds', `thresholds.steps is ${JSON.stringify(steps)}, not a list`);
  } else if (!steps.length) {
    issue('empty-thresholds', 'thresholds.steps is []', 'warning');
  } else if (steps.some((step, i) => i > 0 && typeof step.value !== 'number')) {
    issue('bad-thresholds', JSON.stringify(steps));
  }
}

function checkOptions(panel, plugin, issue) {
  const { defaults, overrides } = panel.fieldConfig;
  const known = (id) => Boolean(plugin.fieldConfigRegistry.getIfExists(id));
  for (const { id } of overrides.flatMap((override) => override.properties ?? [])) {
    if (!known(id)) issue('unknown-override-property', id);
  }
  const unread = (path) =>
    issue('unknown-field-option', `fieldConfig.defaults.${path} is not read`, 'warning');
  for (const name of Object.keys(defaults)) {
    if (name !== 'custom' && !known(name)) unread(name);
  }
  for (const name of Object.keys(defaults.custom ?? {})) {
    if (!known(`custom.${name}`)) unread(`custom.${name}`);
  }
  for (const name of Object.keys(panel.options)) {
    if (!(name in plugin.defaults)) issue('unknown-option', `options.${name}`, 'warning');
  }
}

function checkOverrides(frames, overrides, issue) {
  for (const { matcher } of overrides) {
    const known = fieldMatchers.getIfExists(matcher?.id);
    if (!known) {
      issue('unknown-matcher', String(matcher?.id));
      continue;
    }
    try {
      const matches = known.get(matcher.options);
      const matched = frames.some((frame) =>
        frame.fields.some((field) => matches(field, frame, frames)),
      );
      if (frames.length && !matched) {
        issue('override-matches-nothing', JSON.stringify(matcher), 'warning');
      }
    } catch (error) {
      issue('bad-matcher', error.message);
    }
  }
}

/** Reports a data source that Grafana would not find. */
export function datasourceCheck(vars, datasources, issue, scoped = {}) {
  return (datasource, owner) => {
    if (datasource === undefined || datasource === null) return;
    const uid = typeof datasource === 'object' ? (datasource.uid ?? '') : datasource;
    const name = vars.interpolate(uid, scoped, 'raw');
    if (DATASOURCES_WITHOUT_QUERY.test(name)) {
      if (owner !== 'panel') issue('unsupported-datasource', `${owner}: ${name}`);
      return;
    }
    const found = datasources.some((one) => one.uid === name || one.name === name);
    if (!found && name !== 'default' && name !== '') {
      issue('datasource-not-found', `${owner}: ${JSON.stringify(datasource)} -> ${name}`);
    }
  };
}

function checkDatasources(panel, env, issue, scoped) {
  const check = datasourceCheck(env.vars, env.config.datasources, issue, scoped);
  const targets = panel.targets ?? [];
  const asText = [panel, ...targets].some((one) => typeof one.datasource === 'string');
  if (env.schemaVersion >= 33 && asText) {
    const message = 'is a string; since schemaVersion 33 it is an object {type, uid}';
    issue('datasource-string', message, 'warning');
  }
  check(panel.datasource, 'panel');
  for (const target of targets) {
    check(target.datasource ?? panel.datasource, target.refId);
  }
}

async function transform(frames, panel, interpolate, issue) {
  const wanted = (panel.transformations ?? []).filter((one) => !one.disabled);
  const known = ({ id }) => standardTransformersRegistry.getIfExists(id);
  for (const one of wanted) if (!known(one)) issue('unsupported-transformation', one.id);
  const usable = wanted.filter(known);
  if (!usable.length) return frames;
  const context = { interpolate: (text) => interpolate(text) };
  return lastValueFrom(transformDataFrame(usable, frames, context));
}

function panelRange(panel, range) {
  if (!panel.timeFrom) return range;
  const from = `now-${panel.timeFrom}`;
  return { from: dateMath.parse(from), to: range.to, raw: { from, to: 'now' } };
}

function describe(frame, frames) {
  const fields = frame.fields.map((field) => getFieldDisplayName(field, frame, frames));
  return { name: frame.name, refId: frame.refId, rows: frame.length, fields };
}

async function fetchFrames(prepared, env) {
  const { panel, issue, interpolate, range, record } = prepared;
  const promText = (text, scoped) =>
    env.vars.interpolate(text, { ...prepared.scoped, ...env.globals, ...scoped }, 'prom');
  const { frames, queries } = await runTargets({
    panel,
    range,
    issue,
    width: pixelWidth(prepared.w, env.config.width) - PANEL_PADDING,
    scrape: env.config.scrape,
    prometheus: env.prometheus,
    interpolate: promText,
  });
  record.queries = queries;
  prepared.error = queries.find((query) => query.error)?.error ?? null;
  try {
    return await transform(frames, panel, interpolate, issue);
  } catch (error) {
    issue('transformation-failed', error.message);
    prepared.error = error.message;
    return frames;
  }
}

function judgeEmptiness({ panel, issue, record, error, fieldConfig }, rows) {
  record.empty = rows === 0 && !error;
  record.noValue = fieldConfig.defaults.noValue ?? null;
  if (record.empty && !String(fieldConfig.defaults.noValue ?? '').trim()) {
    issue('bare-no-data', 'draws "No data": no data, and no noValue text');
  }
  if (panel.type === 'text') record.empty = false;
}

export async function preparePanel(item, env, issueFor) {
  const panel = structuredClone(item.panel);
  const { vars, theme, timeZone } = env;
  const title = vars.interpolate(panel.title ?? '', item.scoped);
  const where = { panel: title, id: panel.id, type: panel.type };
  const issue = issueFor(where);
  const record = { ...where, empty: false, queries: [], frames: [] };
  const prepared = { ...item, panel, title, issue, record, error: null, frames: [] };
  prepared.range = panelRange(panel, env.range);
  const interpolate = (text, scoped, format) =>
    vars.interpolate(text, { ...item.scoped, ...env.globals, ...scoped }, format);
  prepared.interpolate = interpolate;
  if (panel.type === 'row') {
    const count = panel.panels?.length ?? 0;
    if (panel.collapsed) issue('collapsed-row', `${count} panels not drawn`, 'warning');
    return prepared;
  }
  if (panel.libraryPanel) issue('unsupported-library-panel', panel.libraryPanel.uid ?? '');
  const plugin = pluginFor(panel.type);
  if (!plugin) {
    issue('unsupported-panel-type', `${panel.type} (drawn: ${supportedTypes.join(', ')})`);
    prepared.error = `This preview does not draw panels of type ${panel.type}`;
    return prepared;
  }
  checkThresholds(panel, issue);
  migratePanel(panel, plugin);
  if (panel.type !== 'text') checkOptions(panel, plugin, issue);
  const { options, fieldConfig } = getPanelOptionsWithDefaults({
    plugin,
    currentOptions: panel.options,
    currentFieldConfig: panel.fieldConfig,
    isAfterPluginChange: false,
  });
  Object.assign(prepared, { options, fieldConfig });
  if (panel.type === 'text') {
    if (!panel.options.content?.trim()) issue('empty-text', 'no content', 'warning');
    return prepared;
  }
  checkDatasources(panel, env, issue, item.scoped);
  if (!(panel.targets ?? []).some((target) => !target.hide)) {
    issue('no-targets', 'panel has no query');
    return prepared;
  }
  const fetched = await fetchFrames(prepared, env);
  checkOverrides(fetched, fieldConfig.overrides ?? [], issue);
  const frames = applyFieldOverrides({
    data: fetched,
    fieldConfig,
    fieldConfigRegistry: plugin.fieldConfigRegistry,
    replaceVariables: interpolate,
    theme,
    timeZone,
  });
  const rows = frames.reduce((sum, frame) => sum + frame.length, 0);
  record.frames = frames.map((frame) => describe(frame, frames));
  judgeEmptiness(prepared, rows);
  if (panel.type === 'table' && frames.length > 1) {
    const message = `${frames.length} frames; Grafana shows one with a selector`;
    issue('table-many-frames', message, 'warning');
  }
  prepared.frames = rows ? frames : [];
  return prepared;
}
