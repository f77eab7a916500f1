// Time on x and named rows on y: what state timeline, status history and heatmap share.
// Own drawing on Grafana's UPlotConfigBuilder; its timeline and heatmap are in no package.
import { UPlotChart, UPlotConfigBuilder, VizLayout, VizLegend, measureText } from '@grafana/ui';
import { useMemo } from 'react';

import { drawEvents } from '../annotations.js';

const LABEL_SHARE = 0.3;
const LABEL_SPACE = 12;

/** Width for the labels; says where that is too little for them. */
export function labelWidth(labels, width, issue) {
  const widest = Math.max(0, ...labels.map((label) => measureText(label, 12).width));
  const limit = width * LABEL_SHARE;
  if (widest + LABEL_SPACE > limit + 1) {
    const longest = labels.reduce((a, b) => (b.length > a.length ? b : a), '');
    issue('label-cut-off', `${JSON.stringify(longest)} needs more than 30 % of the panel`);
  }
  return Math.min(limit, widest + LABEL_SPACE);
}

export function clipped(plot, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox, window.devicePixelRatio);
  ctx.restore();
}

/** ticks: [{at: 0 (bottom) to 1, label}]; draw(plot): what is in the plot. */
export function RowsChart({ ctx, ticks, size, draw, legend, deps = [] }) {
  const { range, timeZone, width, height, theme, events } = ctx;
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder(timeZone);
    const [from, to] = [range.from.valueOf(), range.to.valueOf()];
    builder.addScale({
      scaleKey: 'x',
      isTime: true,
      orientation: 0,
      direction: 1,
      range: () => [from, to],
    });
    builder.addScale({
      scaleKey: 'y',
      isTime: false,
      orientation: 1,
      direction: 1,
      range: [0, 1],
    });
    builder.addAxis({
      scaleKey: 'x',
      isTime: true,
      placement: 'bottom',
      timeZone,
      theme,
      grid: { show: true },
    });
    builder.addAxis({
      scaleKey: 'y',
      isTime: false,
      placement: 'left',
      theme,
      grid: { show: false },
      ticks: { show: false },
      size,
      splits: () => ticks.map(({ at }) => at),
      values: () => ticks.map(({ label }) => label),
    });
    builder.addSeries({
      scaleKey: 'y',
      theme,
      pathBuilder: () => null,
      show: true,
      pxAlign: false,
      colorMode: { id: 'fixed' },
      fieldName: 'x',
    });
    builder.addHook('drawClear', (plot) =>
      clipped(plot, (canvas, box, ratio) => draw(plot, canvas, box, ratio)),
    );
    builder.addHook('draw', drawEvents(events));
    return builder;
    // A still picture: what it draws does not change once it is there.
  }, deps);
  const data = [
    [range.from.valueOf(), range.to.valueOf()],
    [null, null],
  ];
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(w, h) => <UPlotChart config={config} data={data} width={w} height={h} timeRange={range} />}
    </VizLayout>
  );
}

export function listLegend(entries) {
  const items = entries.map(([label, color]) => ({ label, color, yAxis: 1 }));
  return (
    <VizLayout.Legend placement="bottom">
      <VizLegend placement="bottom" displayMode="list" readonly items={items} />
    </VizLayout.Legend>
  );
}
