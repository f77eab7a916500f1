// State timeline and status history.
import { FieldType, formattedValueToString, getFieldDisplayName } from '@grafana/data';

import { RowsChart, labelWidth, listLegend } from './rows.jsx';

const DRAWN = [FieldType.number, FieldType.string, FieldType.boolean];
// A longer silence than this many steps is a gap, not the same state for longer.
const GAP_STEPS = 1.5;

function rowsOf(frames) {
  return frames.flatMap((frame) => {
    const time = frame.fields.find(({ type }) => type === FieldType.time);
    if (!time) return [];
    return frame.fields
      .filter((field) => DRAWN.includes(field.type) && !field.config.custom?.hideFrom?.viz)
      .map((field) => ({
        name: getFieldDisplayName(field, frame, frames),
        field,
        times: time.values,
        step: time.config.interval ?? 0,
      }));
  });
}

function segmentsOf({ field, times, step }, end, merge) {
  const segments = [];
  times.forEach((from, i) => {
    const value = field.values[i];
    if (value === null || value === undefined) return;
    const shown = field.display(value);
    const text = formattedValueToString(shown);
    const next = Math.min(end, times[i + 1] ?? end);
    const to = step && next - from > GAP_STEPS * step ? from + step : next;
    const last = segments.at(-1);
    if (merge && last?.text === text && last.to === from) last.to = to;
    else segments.push({ from, to, text, color: shown.color });
  });
  return segments;
}

function drawSegment(canvas, segment, box, custom, theme, ratio) {
  const { x, y, width, height } = box;
  canvas.fillStyle = segment.color ?? theme.colors.text.secondary;
  canvas.globalAlpha = (custom.fillOpacity ?? 70) / 100;
  canvas.fillRect(x, y, width, height);
  canvas.globalAlpha = 1;
  if (custom.lineWidth) {
    canvas.strokeStyle = segment.color;
    canvas.lineWidth = custom.lineWidth * ratio;
    canvas.strokeRect(x, y, width, height);
  }
}

function drawText(canvas, segment, { x, y, width, height }, options, theme, ratio) {
  canvas.font = `500 ${12 * ratio}px Inter`;
  const margin = 4 * ratio;
  const fits = canvas.measureText(segment.text).width + 2 * margin < width;
  if (options.showValue === 'never' || (!fits && options.showValue !== 'always')) return;
  const align = options.alignValue ?? 'center';
  const at = { left: x + margin, center: x + width / 2, right: x + width - margin };
  canvas.fillStyle = theme.colors.getContrastText(segment.color ?? '#888');
  canvas.textBaseline = 'middle';
  canvas.textAlign = align;
  canvas.fillText(segment.text, at[align], y + height / 2);
}

function TimelineChart({ ctx, merge, cellShare }) {
  const { frames, options, range, theme } = ctx;
  const rows = rowsOf(frames).map((row) => ({
    ...row,
    segments: segmentsOf(row, range.to.valueOf(), merge),
  }));
  const states = new Map();
  for (const { text, color } of rows.flatMap((row) => row.segments)) states.set(text, color);
  const draw = (plot, canvas, { left, top, width, height }, ratio) => {
    const place = (time) => Math.min(left + width, Math.max(left, plot.valToPos(time, 'x', true)));
    const rowHeight = height / rows.length;
    rows.forEach(({ field, segments }, i) => {
      const drawn = rowHeight * options.rowHeight;
      const y = top + i * rowHeight + (rowHeight - drawn) / 2;
      for (const segment of segments) {
        const [from, to] = [place(segment.from), place(segment.to)];
        const box = { x: from, y, width: (to - from) * cellShare, height: drawn };
        drawSegment(canvas, segment, box, field.config.custom ?? {}, theme, ratio);
        drawText(canvas, segment, box, options, theme, ratio);
      }
    });
  };
  const names = rows.map(({ name }) => name);
  return (
    <RowsChart
      ctx={ctx}
      ticks={names.map((label, i) => ({ at: 1 - (i + 0.5) / names.length, label }))}
      size={labelWidth(names, ctx.width, ctx.issue)}
      draw={draw}
      legend={options.legend.showLegend ? listLegend([...states]) : null}
    />
  );
}

export const StateTimeline = ({ ctx }) => (
  <TimelineChart ctx={ctx} merge={ctx.options.mergeValues} cellShare={1} />
);

export const StatusHistory = ({ ctx }) => (
  <TimelineChart ctx={ctx} merge={false} cellShare={ctx.options.colWidth} />
);
