// Heatmap of buckets that the query gives (calculate: false).
import { FieldType, formattedValueToString, getValueFormat } from '@grafana/data';
import * as chromatic from 'd3-scale-chromatic';

import { sampleNumber } from '../prometheus.js';
import { RowsChart, labelWidth } from './rows.jsx';

const MAX_TICKS_PX = 18;
const DIVERGING = /^(BrBG|PiYG|PRGn|PuOr|RdBu|RdGy|RdYlBu|RdYlGn|Spectral|Rainbow|Sinebow)$/;
const DARK_TO_LIGHT = /^(Turbo|Cividis|Viridis|Magma|Inferno|Plasma|Warm|Cool|Cubehelix.*)$/;

/** Grafana turns a scheme round so that many stand out from the theme's background. */
function isTurned(scheme, theme) {
  if (DIVERGING.test(scheme)) return true;
  return DARK_TO_LIGHT.test(scheme) ? theme.isLight : theme.isDark;
}

/** The colours from few to many. */
export function palette(color, theme) {
  const steps = Math.max(2, color.steps);
  const shares = Array.from({ length: steps }, (_, i) => i / (steps - 1));
  if (color.mode === 'opacity') {
    const fill = theme.visualization.getColorByName(color.fill);
    const exponent = color.scale === 'linear' ? 1 : color.exponent;
    return shares.map((share) => ({ fill, alpha: share ** exponent }));
  }
  const interpolate = chromatic[`interpolate${color.scheme}`];
  if (!interpolate) return null;
  const turned = isTurned(color.scheme, theme) !== Boolean(color.reverse);
  return shares.map((share) => ({ fill: interpolate(turned ? 1 - share : share), alpha: 1 }));
}

function boundFormatter(options) {
  const format = getValueFormat(options.yAxis.unit || 'short');
  const { decimals } = options.yAxis;
  return (name) => {
    const number = sampleNumber(name);
    if (Number.isNaN(number)) return name;
    return Number.isFinite(number) ? formattedValueToString(format(number, decimals)) : '+Inf';
  };
}

function cellsOf(columns, { ge = -Infinity, le = 1e-9 }) {
  const shown = (count) => count !== null && Number.isFinite(count) && count > le && count >= ge;
  return columns.flatMap(({ values }, row) =>
    [...values].map((count, at) => ({ row, at, count })).filter(({ count }) => shown(count)),
  );
}

function ColorScale({ colors, low, high, unit, theme }) {
  const format = getValueFormat(unit || 'short');
  const text = (number) => formattedValueToString(format(number));
  const stops = colors.map(({ fill, alpha }) => {
    const share = Math.round(alpha * 100);
    return `color-mix(in srgb, ${fill} ${share}%, transparent)`;
  });
  const bar = { width: 200, height: 8, background: `linear-gradient(90deg, ${stops.join()})` };
  const row = { display: 'flex', gap: 8, alignItems: 'center', height: 22, fontSize: 12 };
  return (
    <div style={{ ...row, color: theme.colors.text.secondary }}>
      <span>{text(low)}</span>
      <span style={bar} />
      <span>{text(high)}</span>
    </div>
  );
}

const LEGEND_HEIGHT = 24;

export function Heatmap({ ctx }) {
  const { frames, options, theme, issue, width, height } = ctx;
  const frame = frames.find(({ meta }) => meta?.type === 'heatmap-rows') ?? frames[0];
  const time = frame.fields.find(({ type }) => type === FieldType.time);
  const columns = frame.fields.filter(({ type }) => type === FieldType.number);
  const colors = palette(options.color, theme);
  if (options.calculate) issue('unsupported-option', 'heatmap: calculate is not drawn');
  if (!colors) issue('unknown-color-scheme', String(options.color.scheme));
  if (options.calculate || !colors || !time || !columns.length) return null;
  const cells = cellsOf(columns, options.filterValues ?? {});
  const counts = cells.map(({ count }) => count);
  const low = options.color.min ?? Math.min(...counts);
  const high = options.color.max ?? Math.max(...counts);
  const colorOf = (count) => {
    const share = high > low ? (count - low) / (high - low) : 1;
    return colors[Math.round(Math.min(1, Math.max(0, share)) * (colors.length - 1))];
  };
  const step = time.config.interval ?? time.values[1] - time.values[0];
  const from = (row) => (options.yAxis.reverse ? columns.length - 1 - row : row);
  const draw = (plot, canvas, box, ratio) => {
    const rowHeight = box.height / columns.length;
    const gap = options.cellGap * ratio;
    for (const { row, at, count } of cells) {
      const right = plot.valToPos(time.values[at], 'x', true);
      const left = plot.valToPos(time.values[at] - step, 'x', true);
      const top = box.top + box.height - (from(row) + 1) * rowHeight;
      const { fill, alpha } = colorOf(count);
      canvas.fillStyle = fill;
      canvas.globalAlpha = alpha;
      canvas.fillRect(left, top, Math.max(1, right - left - gap), Math.max(1, rowHeight - gap));
    }
  };
  const formatBound = boundFormatter(options);
  // A bucket's name is its upper bound, so its label is at the upper edge.
  const edges = columns.map(({ name }, row) => ({
    at: (options.yAxis.reverse ? from(row) : row + 1) / columns.length,
    label: formatBound(name),
  }));
  const every = Math.ceil((edges.length * MAX_TICKS_PX) / height);
  const ticks = edges.filter((_, i) => (edges.length - 1 - i) % every === 0);
  const legend = options.legend.show;
  const chart = { ...ctx, height: legend ? height - LEGEND_HEIGHT : height };
  return (
    <div>
      <RowsChart
        ctx={chart}
        ticks={ticks}
        size={labelWidth(
          ticks.map(({ label }) => label),
          width,
          issue,
        )}
        draw={draw}
        legend={null}
      />
      {legend && counts.length > 0 && (
        <ColorScale
          colors={colors}
          low={low}
          high={high}
          unit={options.cellValues?.unit}
          theme={theme}
        />
      )}
    </div>
  );
}
