// Stat, bar gauge and text: Grafana's own components.
import {
  VizOrientation,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderTextPanelMarkdown,
  textUtil,
} from '@grafana/data';
import { BarGauge, BigValue, VizRepeater } from '@grafana/ui';

export function resolveOrientation({ options, width, height }) {
  if (options.orientation && options.orientation !== 'auto') return options.orientation;
  return width > height ? VizOrientation.Vertical : VizOrientation.Horizontal;
}

/** One drawing per value; with no data it is one drawing of the noValue text. */
export function Repeated({ ctx, orientation, sparkline, draw, ...more }) {
  const { frames, options, fieldConfig, width, height, interpolate, theme, timeZone } = ctx;
  const getValues = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables: interpolate,
      theme,
      data: frames,
      sparkline,
      timeZone,
    });
  return (
    <VizRepeater
      source={frames}
      getValues={getValues}
      renderCounter={0}
      width={width}
      height={height}
      orientation={orientation ?? options.orientation}
      renderValue={draw}
      {...more}
    />
  );
}

export function Stat({ ctx }) {
  const { options, theme } = ctx;
  const draw = ({ value, width, height, alignmentFactors, count }) => {
    if (value.sparkline) value.sparkline.timeRange = ctx.range;
    return (
      <BigValue
        value={value.display}
        count={count}
        sparkline={value.sparkline}
        colorMode={options.colorMode}
        graphMode={options.graphMode}
        justifyMode={options.justifyMode}
        textMode={options.textMode}
        alignmentFactors={alignmentFactors}
        text={options.text}
        width={width}
        height={height}
        theme={theme}
        hasLinks={value.hasLinks}
        percentChangeColorMode={options.percentChangeColorMode}
        disableWideLayout={!options.wideLayout}
      />
    );
  };
  return (
    <Repeated
      ctx={ctx}
      sparkline={options.graphMode !== 'none'}
      itemSpacing={3}
      autoGrid
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      draw={draw}
    />
  );
}

export function BarGaugePanel({ ctx }) {
  const { options, theme } = ctx;
  const spacing = options.displayMode === 'lcd' ? 2 : 10;
  const draw = ({ value, width, height, alignmentFactors, orientation }) => {
    const { field, display, view, colIndex } = value;
    const processor =
      view && colIndex !== undefined ? view.getFieldDisplayProcessor(colIndex) : undefined;
    return (
      <BarGauge
        value={display}
        width={width}
        height={height}
        orientation={orientation}
        field={field}
        text={options.text}
        display={processor}
        theme={theme}
        itemSpacing={spacing}
        displayMode={options.displayMode}
        alignmentFactors={alignmentFactors}
        showUnfilled={options.showUnfilled}
        valueDisplayMode={options.valueMode}
        namePlacement={options.namePlacement}
      />
    );
  };
  return (
    <Repeated
      ctx={ctx}
      orientation={resolveOrientation(ctx)}
      itemSpacing={spacing}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      minVizWidth={options.minVizWidth}
      minVizHeight={options.minVizHeight}
      maxVizHeight={options.maxVizHeight}
      draw={draw}
    />
  );
}

export function Text({ ctx }) {
  const { options, interpolate, height } = ctx;
  const content = interpolate(options.content ?? '');
  if (options.mode === 'code') return <pre style={{ height }}>{content}</pre>;
  const html =
    options.mode === 'html'
      ? textUtil.sanitizeTextPanelContent(content)
      : renderTextPanelMarkdown(content);
  return (
    <div
      className="markdown-html"
      data-check="scroll"
      style={{ height: '100%', overflow: 'auto' }}
      dangerouslySetInnerHTML={{ __html: html }}
    />
  );
}
