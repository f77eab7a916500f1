// Own drawing: @grafana/ui exports no gauge. The classic arc of 250 degrees.
import { ThresholdsMode, formattedValueToString } from '@grafana/data';

import { Repeated, resolveOrientation } from './single.jsx';

const START = -215;
const END = 35;
const TITLE_HEIGHT = 18;
const LABEL_SPACE = 14;

function geometry(width, height, options) {
  const margin = options.showThresholdLabels ? LABEL_SPACE : 0;
  const radius = Math.max(10, Math.min(width / 2, height / 1.35) - 8 - margin);
  return { radius, cx: width / 2, cy: radius + 6 + margin };
}

function ringPath({ cx, cy }, from, to, inner, outer) {
  const at = (angle, radius) => {
    const radians = (angle * Math.PI) / 180;
    return `${cx + radius * Math.cos(radians)} ${cy + radius * Math.sin(radians)}`;
  };
  const large = to - from > 180 ? 1 : 0;
  return [
    `M${at(from, outer)}`,
    `A${outer} ${outer} 0 ${large} 1 ${at(to, outer)}`,
    `L${at(to, inner)}`,
    `A${inner} ${inner} 0 ${large} 0 ${at(from, inner)}Z`,
  ].join('');
}

function Arc({ value, width, height, options, theme, count }) {
  const { display, field } = value;
  const titleHeight = count > 1 && display.title ? TITLE_HEIGHT : 0;
  const shape = geometry(width, height - titleHeight, options);
  const { radius, cx, cy } = shape;
  const { min = 0, max = 100 } = field;
  const mark = options.showThresholdMarkers ? Math.max(3, radius * 0.05) : 0;
  const outer = radius - mark - 1;
  const inner = outer - radius * 0.24;
  const share = (number) => Math.min(1, Math.max(0, (number - min) / (max - min || 1)));
  const angle = (number) => START + (END - START) * share(number);
  const percent = field.thresholds?.mode === ThresholdsMode.Percentage;
  const absolute = (number) => (percent ? min + ((max - min) * number) / 100 : number);
  const steps = field.thresholds?.steps ?? [];
  const marks = steps.map((step, i) => ({
    from: angle(i ? absolute(step.value) : min),
    to: angle(i + 1 < steps.length ? absolute(steps[i + 1].value) : max),
    color: theme.visualization.getColorByName(step.color),
  }));
  const text = formattedValueToString(display);
  const size = Math.min(radius * 0.5, ((radius * 1.25) / Math.max(3, text.length)) * 1.7);
  const title = { fontSize: 12, lineHeight: '16px', overflow: 'hidden', whiteSpace: 'nowrap' };
  return (
    <div style={{ width, height, textAlign: 'center' }}>
      <svg width={width} height={height - titleHeight}>
        <path
          d={ringPath(shape, START, END, inner, outer)}
          fill={theme.colors.background.secondary}
        />
        {Number.isFinite(display.numeric) && (
          <path
            d={ringPath(shape, START, Math.max(START + 0.1, angle(display.numeric)), inner, outer)}
            fill={display.color}
          />
        )}
        {mark > 0 &&
          marks
            .filter(({ from, to }) => to > from)
            .map(({ from, to, color }) => (
              <path key={from} d={ringPath(shape, from, to, outer + 2, radius + 1)} fill={color} />
            ))}
        {options.showThresholdLabels &&
          steps.slice(1).map((step) => {
            const radians = (angle(absolute(step.value)) * Math.PI) / 180;
            return (
              <text
                key={step.value}
                x={cx + (radius + 9) * Math.cos(radians)}
                y={cy + (radius + 9) * Math.sin(radians)}
                fontSize={11}
                textAnchor="middle"
                fill={theme.colors.text.primary}
              >
                {step.value}
                {percent ? '%' : ''}
              </text>
            );
          })}
        <text
          x={cx}
          y={cy + size * 0.35}
          fontSize={size}
          fontWeight={500}
          textAnchor="middle"
          fill={display.color}
        >
          {text}
        </text>
      </svg>
      {titleHeight > 0 && <div style={{ ...title, textOverflow: 'ellipsis' }}>{display.title}</div>}
    </div>
  );
}

export function Gauge({ ctx }) {
  return (
    <Repeated
      ctx={ctx}
      orientation={resolveOrientation(ctx)}
      autoGrid
      minVizWidth={75}
      minVizHeight={75}
      draw={(props) => <Arc {...props} options={ctx.options} theme={ctx.theme} />}
    />
  );
}
