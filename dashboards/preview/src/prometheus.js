// Prometheus' HTTP API -> data frames of the shapes that Grafana's documentation describes.
import { FieldType, createDataFrame, rangeUtil } from '@grafana/data';

const MAX_POINTS = 11000;

export class PrometheusError extends Error {}

export class Prometheus {
  constructor(base) {
    this.base = base;
  }

  /** {data, warnings}; a PrometheusError with its own words where it refuses. */
  async get(path, params) {
    const body = new URLSearchParams();
    for (const [name, value] of Object.entries(params)) {
      for (const one of [].concat(value)) body.append(name, one);
    }
    const url = `${this.base}/api/v1/${path}`;
    let response = await fetch(url, { method: 'POST', body });
    if (response.status === 405) response = await fetch(`${url}?${body}`);
    const unreadable = { status: 'error', error: `HTTP ${response.status}` };
    const answer = await response.json().catch(() => unreadable);
    if (answer.status !== 'success') {
      throw new PrometheusError(`${answer.errorType ?? 'error'}: ${answer.error}`);
    }
    return { data: answer.data, warnings: answer.warnings ?? [] };
  }

  /** Both ends fall on multiples of the step, as Grafana asks. */
  range(query, range, step) {
    const aligned = (time) => Math.floor(time.valueOf() / 1000 / step) * step;
    const [start, end] = [aligned(range.from), aligned(range.to)];
    return this.get('query_range', { query, start, end, step });
  }
}

export function sampleNumber(text) {
  const special = { '+Inf': Infinity, '-Inf': -Infinity, NaN };
  return text in special ? special[text] : Number(text);
}

function metricText({ __name__: name = '', ...labels }) {
  const pairs = Object.entries(labels)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([label, value]) => `${label}="${value}"`);
  return pairs.length || !name ? `${name}{${pairs.join(', ')}}` : name;
}

export const fillLabels = (format, labels) =>
  format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '');

function legendText(labels, format, expr) {
  if (format === '__auto') return Object.keys(labels).length ? '' : expr;
  if (format) return fillLabels(format, labels);
  const text = metricText(labels);
  return text === '{}' ? expr : text;
}

function seconds(text, fallback) {
  try {
    return rangeUtil.intervalToSeconds(String(text));
  } catch {
    return fallback;
  }
}

const durationText = (ms) => (ms % 1000 ? `${Math.round(ms)}ms` : `${ms / 1000}s`);

/** Step and interval variables of one target, by the rules of Grafana's documentation. */
export function intervals({ target, panel, range, width, scrape, interpolate }) {
  const points = panel.maxDataPoints || Math.max(50, Math.round(width));
  const asked = interpolate(target.interval || panel.interval || '').replace(/^>/, '');
  const least = asked || `${scrape}s`;
  const automatic = rangeUtil.calculateInterval(range, points, least).intervalMs;
  const factor = target.intervalFactor || 1;
  const rangeMs = range.to.valueOf() - range.from.valueOf();
  const stepMs = Math.max(
    Math.max(automatic, seconds(least, scrape) * 1000, 1) * factor,
    Math.ceil(rangeMs / MAX_POINTS),
  );
  const scrapeMs = scrape * 1000;
  const rateMs = Math.max(stepMs + scrapeMs, 4 * scrapeMs);
  const rangeS = Math.round(rangeMs / 1000);
  return {
    stepMs,
    scoped: {
      __interval: { value: durationText(stepMs) },
      __interval_ms: { value: stepMs },
      __rate_interval: { value: durationText(rateMs) },
      __range: { value: `${rangeS}s` },
      __range_s: { value: rangeS },
      __range_ms: { value: rangeMs },
    },
  };
}

function seriesFrames(data, target, expr, stepMs) {
  const single = data.resultType === 'scalar' || data.resultType === 'string';
  const series = single ? [{ metric: {}, value: data.result }] : data.result;
  return series.map(({ metric, values, value }) => {
    const points = values ?? [value];
    const name = legendText(metric, target.legendFormat, expr);
    return createDataFrame({
      refId: target.refId,
      name: name || undefined,
      meta: { type: 'timeseries-multi', custom: { resultType: data.resultType } },
      fields: [
        {
          name: 'Time',
          type: FieldType.time,
          config: values ? { interval: stepMs } : {},
          values: points.map(([time]) => Math.round(time * 1000)),
        },
        {
          name: 'Value',
          type: FieldType.number,
          labels: { ...metric },
          config: name ? { displayNameFromDS: name } : {},
          values: points.map(([, text]) => sampleNumber(text)),
        },
      ],
    });
  });
}

function tableFrame(frames, refId, many) {
  const labelsOf = (frame) => frame.fields[1].labels ?? {};
  const names = [...new Set(frames.flatMap((frame) => Object.keys(labelsOf(frame))))].sort();
  const times = [];
  const values = [];
  const columns = Object.fromEntries(names.map((name) => [name, []]));
  for (const frame of frames) {
    times.push(...frame.fields[0].values);
    values.push(...frame.fields[1].values);
    for (const name of names) {
      columns[name].push(...Array(frame.length).fill(labelsOf(frame)[name] ?? ''));
    }
  }
  return createDataFrame({
    refId,
    meta: { preferredVisualisationType: 'table', type: 'table' },
    fields: [
      { name: 'Time', type: FieldType.time, config: {}, values: times },
      ...names.map((name) => ({
        name,
        type: name === 'le' ? FieldType.number : FieldType.string,
        config: { filterable: true },
        values: columns[name],
      })),
      {
        name: many ? `Value #${refId}` : 'Value',
        type: FieldType.number,
        config: {},
        values,
      },
    ],
  });
}

const bound = (frame) => sampleNumber(frame.fields[1].labels?.le ?? 'NaN');

/** Cumulative buckets -> one frame with a column of counts per bucket, lowest first. */
function bucketFrame(frames, refId) {
  const sorted = [...frames].sort((a, b) => bound(a) - bound(b));
  const times = [...new Set(sorted.flatMap((frame) => frame.fields[0].values))].sort(
    (a, b) => a - b,
  );
  const cumulative = sorted.map((frame) => {
    const [time, value] = frame.fields;
    const byTime = new Map(time.values.map((at, i) => [at, value.values[i]]));
    return times.map((at) => byTime.get(at) ?? null);
  });
  const counts = cumulative.map((column, i) =>
    column.map((count, at) => {
      if (i === 0 || count === null) return count;
      return Math.max(0, count - (cumulative[i - 1][at] ?? 0));
    }),
  );
  return createDataFrame({
    refId,
    meta: { type: 'heatmap-rows' },
    fields: [
      { name: 'Time', type: FieldType.time, config: sorted[0].fields[0].config, values: times },
      ...sorted.map((frame, i) => ({
        name: frame.fields[1].labels.le,
        type: FieldType.number,
        labels: frame.fields[1].labels,
        config: {},
        values: counts[i],
      })),
    ],
  });
}

function shaped(frames, target, ctx, manyTables) {
  if (!frames.length) return [];
  if (target.format === 'table') return [tableFrame(frames, target.refId, manyTables)];
  if (target.format !== 'heatmap') return frames;
  if (frames.every((frame) => frame.fields[1].labels?.le !== undefined)) {
    const bounds = frames.map((frame) => frame.fields[1].labels.le);
    if (new Set(bounds).size === bounds.length) return [bucketFrame(frames, target.refId)];
    ctx.issue('heatmap-many-series', `${target.refId}: several series of one le; sum by (le)`);
    return [];
  }
  ctx.issue('heatmap-without-le', `${target.refId}: series have no label le`);
  return [];
}

async function runTarget(target, expr, step, ctx) {
  const frames = [];
  const legendFormat = ctx.interpolate(target.legendFormat ?? '', step.scoped);
  const named = { ...target, legendFormat };
  const add = ({ data, warnings }) => {
    for (const warning of warnings) {
      ctx.issue('promql-warning', `${target.refId}: ${warning}`, 'warning');
    }
    frames.push(...seriesFrames(data, named, expr, step.stepMs));
  };
  // A heatmap of one moment is no heatmap.
  const heatmap = target.format === 'heatmap';
  if (heatmap || (target.range ?? !target.instant)) {
    add(await ctx.prometheus.range(expr, ctx.range, step.stepMs / 1000));
  }
  if (target.instant && !heatmap) {
    const time = ctx.range.to.valueOf() / 1000;
    add(await ctx.prometheus.get('query', { query: expr, time }));
  }
  return frames;
}

/** Runs a panel's targets: {frames, queries}. */
export async function runTargets(ctx) {
  const targets = (ctx.panel.targets ?? []).filter((target) => !target.hide);
  const refIds = targets.map((target) => target.refId);
  if (new Set(refIds).size !== refIds.length || refIds.some((refId) => !refId)) {
    ctx.issue('bad-refid', `targets need distinct refIds, got ${JSON.stringify(refIds)}`);
  }
  const manyTables = targets.filter((target) => target.format === 'table').length > 1;
  const run = async (target) => {
    const step = intervals({ ...ctx, target });
    const expr = ctx.interpolate(target.expr ?? '', step.scoped);
    const query = { refId: target.refId, expr, step: step.stepMs / 1000, series: 0 };
    if (!expr.trim()) {
      ctx.issue('empty-query', `${target.refId} has no expr`);
      return { query, frames: [] };
    }
    const left = expr.match(/\$\{?[A-Za-z_][\w:.]*\}?/);
    if (left) ctx.issue('unresolved-variable', `${target.refId}: ${left[0]} in ${expr}`);
    try {
      const frames = await runTarget(target, expr, step, ctx);
      query.series = frames.length;
      return { query, frames: shaped(frames, target, ctx, manyTables) };
    } catch (error) {
      query.error = error.message;
      const code = error instanceof PrometheusError ? 'promql-error' : 'query-failed';
      ctx.issue(code, `${target.refId}: ${error.message}`);
      return { query, frames: [] };
    }
  };
  const done = await Promise.all(targets.map(run));
  return {
    queries: done.map(({ query }) => query),
    frames: done.flatMap(({ frames }) => frames),
  };
}
