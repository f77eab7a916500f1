// Own drawing in SVG: Grafana's bar chart is in no package.
import { FieldType, formattedValueToString, getFieldDisplayName } from '@grafana/data';
import { VizLayout, measureText } from '@grafana/ui';

import { listLegend } from './rows.jsx';

const TEXT_PX = 12;
const MARGIN = 6;
const TICKS = 5;
const LABEL_SHARE = 0.4;
const VALUE_PADDING = 4;

const textWidth = (text, size = TEXT_PX) => measureText(text, size).width;

function niceStep(span) {
  const rough = span / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function fieldsOf(frame, options) {
  const named = (field) => getFieldDisplayName(field, frame) === options.xField;
  const byType = (type) => frame.fields.find((field) => field.type === type);
  const x = options.xField
    ? frame.fields.find(named)
    : (byType(FieldType.string) ?? byType(FieldType.time));
  const bars = frame.fields.filter(
    (field) =>
      field !== x && field.type === FieldType.number && !field.config.custom?.hideFrom?.viz,
  );
  return { x, bars };
}

/** Each bar as {series, row, from, to} in values; stacked ones begin where the last ended. */
function placeBars(bars, rows, stacking) {
  const placed = [];
  for (let row = 0; row < rows; row += 1) {
    const numbers = bars
      .map((field) => field.values[row])
      .map((n) => (Number.isFinite(n) ? n : null));
    const sum = numbers.reduce((total, n) => total + Math.abs(n ?? 0), 0) || 1;
    let above = 0;
    let below = 0;
    numbers.forEach((number, series) => {
      if (number === null) return;
      const size = stacking === 'percent' ? number / sum : number;
      let from = 0;
      if (stacking !== 'none') {
        from = size < 0 ? below : above;
        if (size < 0) below += size;
        else above += size;
      }
      placed.push({ series, row, number, from, to: from + size });
    });
  }
  return placed;
}

function valueRange(placed, bars, stacking) {
  const { min, max, custom = {} } = bars[0]?.config ?? {};
  const ends = placed.flatMap(({ from, to }) => [from, to]);
  let low = Math.min(0, custom.axisSoftMin ?? 0, ...ends);
  let high = Math.max(0, custom.axisSoftMax ?? 0, ...ends);
  if (stacking === 'percent') [low, high] = [Math.min(0, low), 1];
  low = min ?? low;
  high = max ?? high;
  if (high <= low) high = low + 1;
  const step = niceStep(high - low);
  // The last tick may be beyond what a fixed end allows.
  if (max === undefined || max === null) high = Math.ceil(high / step - 1e-9) * step;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) {
    ticks.push(tick);
  }
  return { low, high, ticks };
}

function cut(text, width) {
  if (textWidth(text) <= width) return text;
  let kept = text;
  while (kept && textWidth(`${kept}…`) > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function barText(bar, fields, options, stacking) {
  if (options.showValue === 'never') return '';
  const field = fields[bar.series];
  if (stacking === 'percent') return `${Math.round(Math.abs(bar.to - bar.from) * 100)}%`;
  return formattedValueToString(field.display(bar.number));
}

/** Sizes and directions of one drawing; `horizontal` is the direction of the bars. */
function frameOf(state, width, height) {
  const { horizontal, labels, scale, formatTick, axisShown, issue, longest } = state;
  const limit = horizontal ? width * LABEL_SHARE : (width / Math.max(1, labels.length)) * 0.95;
  const widest = Math.max(0, ...labels.map((label) => textWidth(label)));
  if (widest > limit + 1) {
    issue('label-cut-off', `${JSON.stringify(longest)} does not fit beside its bar`);
  }
  const ticks = axisShown ? scale.ticks.map(formatTick) : [];
  const tickWidth = Math.max(0, ...ticks.map((tick) => textWidth(tick)));
  const lines = TEXT_PX + 2 * MARGIN;
  const box = horizontal
    ? { left: Math.min(widest, limit) + 2 * MARGIN, bottom: axisShown ? lines : MARGIN }
    : { left: axisShown ? tickWidth + 2 * MARGIN : MARGIN, bottom: lines };
  const right = horizontal ? Math.max(MARGIN, tickWidth / 2, state.textRoom) : MARGIN;
  return {
    left: box.left,
    top: MARGIN,
    width: Math.max(1, width - box.left - right),
    height: Math.max(1, height - box.bottom - MARGIN),
    limit,
  };
}

function Axis({ state, box, theme }) {
  const { horizontal, scale, formatTick, axisShown, gridShown } = state;
  const text = { fontSize: TEXT_PX, fill: theme.colors.text.primary };
  return scale.ticks.map((tick) => {
    const share = (tick - scale.low) / (scale.high - scale.low);
    const x = horizontal ? box.left + share * box.width : box.left;
    const y = horizontal ? box.top + box.height : box.top + (1 - share) * box.height;
    const end = horizontal ? { x2: x, y2: box.top } : { x2: box.left + box.width, y2: y };
    const place = horizontal
      ? { x, y: y + TEXT_PX + MARGIN, textAnchor: 'middle' }
      : { x: x - MARGIN, y: y + TEXT_PX / 3, textAnchor: 'end' };
    return (
      <g key={tick}>
        {gridShown && <line x1={x} y1={y} {...end} stroke={theme.colors.border.weak} />}
        {axisShown && (
          <text {...place} {...text}>
            {formatTick(tick)}
          </text>
        )}
      </g>
    );
  });
}

function Categories({ state, box, theme }) {
  const { horizontal, labels } = state;
  const slot = (horizontal ? box.height : box.width) / labels.length;
  return labels.map((label, row) => {
    const middle = (row + 0.5) * slot;
    const place = horizontal
      ? { x: box.left - MARGIN, y: box.top + middle + TEXT_PX / 3, textAnchor: 'end' }
      : { x: box.left + middle, y: box.top + box.height + TEXT_PX + MARGIN, textAnchor: 'middle' };
    return (
      <text key={row} {...place} fontSize={TEXT_PX} fill={theme.colors.text.primary}>
        {cut(label, box.limit)}
      </text>
    );
  });
}

function Bar({ bar, state, box, theme }) {
  const { horizontal, fields, labels, options, stacking, scale, colorOf } = state;
  const share = (number) =>
    Math.min(1, Math.max(0, (number - scale.low) / (scale.high - scale.low)));
  const [begin, end] = [share(bar.from), share(bar.to)].sort((a, b) => a - b);
  const slot = (horizontal ? box.height : box.width) / labels.length;
  const perGroup = stacking === 'none' ? fields.length : 1;
  const group = slot * (perGroup > 1 ? options.groupWidth : 1);
  const lane = group / perGroup;
  const thick = Math.max(1, lane * options.barWidth);
  const index = stacking === 'none' ? bar.series : 0;
  const across = bar.row * slot + (slot - group) / 2 + index * lane + (lane - thick) / 2;
  const rect = horizontal
    ? {
        x: box.left + begin * box.width,
        y: box.top + across,
        width: (end - begin) * box.width,
        height: thick,
      }
    : {
        x: box.left + across,
        y: box.top + (1 - end) * box.height,
        width: thick,
        height: (end - begin) * box.height,
      };
  const custom = fields[bar.series].config.custom ?? {};
  const color = colorOf(bar);
  const radius = Math.min(rect.width, rect.height) * (options.barRadius ?? 0);
  return (
    <g>
      <rect
        {...rect}
        rx={radius}
        fill={color}
        fillOpacity={(custom.fillOpacity ?? 80) / 100}
        stroke={color}
        strokeWidth={custom.lineWidth ?? 1}
      />
      <Value bar={bar} rect={rect} state={state} color={color} theme={theme} />
    </g>
  );
}

function Value({ bar, rect, state, color, theme }) {
  const { horizontal, fields, options, stacking, width, height, issue } = state;
  const text = barText(bar, fields, options, stacking);
  if (!text) return null;
  const size = options.text?.valueSize ?? TEXT_PX;
  const needed = textWidth(text, size);
  const inside = stacking !== 'none';
  const room = inside ? rect.width : horizontal ? width - rect.x - rect.width : rect.width;
  const tall = inside ? rect.height >= size : horizontal ? true : rect.y >= size;
  const fits = needed + VALUE_PADDING <= room && tall && height > size;
  if (!fits && options.showValue !== 'always') return null;
  if (!fits) issue('value-cut-off', `${JSON.stringify(text)} does not fit its bar`, 'warning');
  const middle = { x: rect.x + rect.width / 2, y: rect.y + rect.height / 2 + size / 3 };
  let place = { ...middle, textAnchor: 'middle' };
  if (!inside && horizontal) place = { ...middle, x: rect.x + rect.width + VALUE_PADDING };
  if (!inside && !horizontal) place.y = rect.y - VALUE_PADDING;
  const fill = inside ? theme.colors.getContrastText(color) : theme.colors.text.primary;
  return (
    <text {...place} fontSize={size} fill={fill}>
      {text}
    </text>
  );
}

export function BarChart({ ctx }) {
  const { frames, options, theme, issue, width, height } = ctx;
  const [frame] = frames;
  if (frames.length > 1) {
    issue('barchart-many-frames', `${frames.length} frames; transform them into one`);
  }
  const { x, bars } = fieldsOf(frame, options);
  if (!x || !bars.length) {
    issue('barchart-fields', 'needs a string or time field and a numeric one');
    return null;
  }
  const { stacking } = options;
  const rows = [...x.values];
  const labels = rows
    .map((value) => formattedValueToString(x.display?.(value) ?? { text: String(value) }))
    .map((label) => label.slice(0, options.xTickLabelMaxLength ?? Infinity));
  const wide = width > height;
  const automatic = options.orientation === 'auto' || !options.orientation;
  const placed = placeBars(bars, rows.length, stacking);
  const byField = frame.fields.find(
    (field) => options.colorByField === getFieldDisplayName(field, frame, frames),
  );
  const custom = bars[0].config.custom ?? {};
  const percent = stacking === 'percent';
  const state = {
    horizontal: automatic ? !wide : options.orientation === 'horizontal',
    fields: bars,
    labels,
    longest: labels.reduce((a, b) => (b.length > a.length ? b : a), ''),
    options,
    stacking,
    scale: valueRange(placed, bars, stacking),
    formatTick: (tick) =>
      percent ? `${Math.round(tick * 100)}%` : formattedValueToString(bars[0].display(tick)),
    axisShown: custom.axisPlacement !== 'hidden',
    gridShown: custom.axisGridShow ?? true,
    colorOf: ({ row, series, number }) =>
      byField ? byField.display(byField.values[row]).color : bars[series].display(number).color,
    issue,
  };
  // Beside a bar that is not stacked its value is written; the longest bar leaves room for it.
  const texts =
    stacking === 'none' ? placed.map((bar) => barText(bar, bars, options, stacking)) : [];
  const sizes = texts.map((text) => textWidth(text, options.text?.valueSize ?? TEXT_PX));
  state.textRoom = Math.max(0, ...sizes) + 2 * VALUE_PADDING;
  const entries = bars.map((field) => [
    getFieldDisplayName(field, frame, frames),
    field.display(field.values.find((value) => Number.isFinite(value)) ?? 0).color,
  ]);
  const legend = options.legend.showLegend ? listLegend(entries) : null;
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(w, h) => {
        const box = frameOf(state, w, h);
        const sized = { ...state, width: w, height: h };
        return (
          <svg width={w} height={h}>
            <Axis state={state} box={box} theme={theme} />
            {placed.map((bar) => (
              <Bar key={`${bar.row}-${bar.series}`} {...{ bar, box, theme }} state={sized} />
            ))}
            <Categories state={state} box={box} theme={theme} />
          </svg>
        );
      }}
    </VizLayout>
  );
}
