// Annotation queries of Prometheus: events to draw over time series and timelines.
import { rangeUtil } from '@grafana/data';

import { PrometheusError, fillLabels, sampleNumber } from './prometheus.js';

const DEFAULT_STEP = '60s';

const isOn = (definition) => definition.enable !== false;

/** Samples above zero are events; those no more than a step apart are one region. */
export function eventsOf(series, definition, stepMs) {
  const { titleFormat = '', textFormat = '', tagKeys = '' } = definition;
  return series.flatMap(({ metric, values }) => {
    const tags = tagKeys.split(',').map((key) => metric[key.trim()]);
    const event = {
      title: fillLabels(titleFormat, metric),
      text: fillLabels(textFormat, metric),
      tags: tags.filter(Boolean),
    };
    const times = values
      .map(([time, value]) => ({ time: time * 1000, value: sampleNumber(value) }))
      .filter(({ value }) => value > 0)
      .map(({ time, value }) => Math.floor(definition.useValueForTime ? value : time));
    const events = [];
    for (const time of times) {
      const open = events.at(-1);
      if (open && time <= open.timeEnd + stepMs) open.timeEnd = Math.max(open.timeEnd, time);
      else events.push({ ...event, time, timeEnd: time });
    }
    return events;
  });
}

async function runOne(definition, env) {
  const { vars, range, theme, issue, prometheus } = env;
  const { name, filter, iconColor = 'red' } = definition;
  const target = definition.target ?? {};
  const source = definition.expr ?? target.expr ?? '';
  const step = definition.step || target.interval || DEFAULT_STEP;
  const record = { name, enabled: isOn(definition), series: 0, events: 0 };
  const result = {
    record,
    filter,
    color: theme.visualization.getColorByName(iconColor),
    events: [],
  };
  if (!source.trim()) {
    issue('annotation-error', `${name}: has no expr`);
    return result;
  }
  const scoped = { __interval: { value: step }, __rate_interval: { value: step } };
  const expr = vars.interpolate(source, { ...env.globals, ...scoped }, 'prom');
  const stepMs = rangeUtil.intervalToMs(vars.interpolate(step));
  try {
    const { data } = await prometheus.range(expr, range, stepMs / 1000);
    record.series = data.result.length;
    const inRange = (event) => event.timeEnd >= range.from && event.time <= range.to;
    const events = eventsOf(data.result, definition, stepMs).filter(inRange);
    record.events = events.length;
    record.titles = [...new Set(events.map(({ title }) => title))].slice(0, 20);
    if (isOn(definition)) result.events = events;
  } catch (error) {
    const code = error instanceof PrometheusError ? 'annotation-error' : 'query-failed';
    issue(code, `${name}: ${error.message}`);
  }
  return result;
}

export function runAnnotations(dashboard, env) {
  const own = (dashboard.annotations?.list ?? []).filter((definition) => !definition.builtIn);
  for (const { name, datasource } of own) env.checkDatasource(datasource, `annotation ${name}`);
  return Promise.all(own.map((definition) => runOne(definition, env)));
}

/** The events that a panel shows. */
export function eventsFor(annotations, panelId) {
  const shows = ({ filter }) =>
    !filter?.ids?.length || filter.ids.includes(panelId) !== Boolean(filter.exclude);
  return annotations
    .filter(shows)
    .flatMap(({ events, color }) => events.map((event) => ({ ...event, color })));
}

/** A uPlot draw hook: a dashed line where an event begins and ends, faint between. */
export function drawEvents(events) {
  return (plot) => {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const ratio = window.devicePixelRatio;
    const place = (time) => Math.round(plot.valToPos(time, 'x', true));
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    for (const { time, timeEnd, color } of events) {
      const [from, to] = [place(time), place(timeEnd)];
      ctx.strokeStyle = color;
      ctx.fillStyle = color;
      ctx.globalAlpha = 0.1;
      ctx.fillRect(from, top, to - from, height);
      ctx.globalAlpha = 0.9;
      for (const x of new Set([from, to])) {
        ctx.beginPath();
        ctx.moveTo(x + 0.5, top);
        ctx.lineTo(x + 0.5, top + height);
        ctx.stroke();
      }
    }
    ctx.restore();
  };
}
