// Panel types: PanelPlugin objects with the options and field options that Grafana 11-13 read.
import {
  PanelPlugin,
  booleanOverrideProcessor,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { sharedSingleStatMigrationHandler } from '@grafana/ui';

const nothing = () => null;

const standardOption = (id, process, more = {}) => ({
  id,
  path: id,
  name: id,
  description: '',
  editor: nothing,
  override: nothing,
  process,
  shouldApply: () => true,
  settings: {},
  category: [],
  ...more,
});

const DEFAULT_THRESHOLDS = {
  mode: 'absolute',
  steps: [
    { value: -Infinity, color: 'green' },
    { value: 80, color: 'red' },
  ],
};

function standardOptions() {
  return [
    standardOption('displayName', displayNameOverrideProcessor, {
      settings: { expandTemplateVars: true },
    }),
    standardOption('unit', unitOverrideProcessor),
    standardOption('min', numberOverrideProcessor),
    standardOption('max', numberOverrideProcessor),
    standardOption('fieldMinMax', booleanOverrideProcessor),
    standardOption('decimals', numberOverrideProcessor, { settings: { integer: true } }),
    standardOption('noValue', displayNameOverrideProcessor),
    standardOption('description', identityOverrideProcessor),
    standardOption('filterable', booleanOverrideProcessor),
    standardOption('mappings', valueMappingsOverrideProcessor, { defaultValue: [] }),
    standardOption('thresholds', thresholdsOverrideProcessor, {
      defaultValue: DEFAULT_THRESHOLDS,
    }),
    standardOption('links', dataLinksOverrideProcessor),
    standardOption('actions', identityOverrideProcessor),
    standardOption('color', identityOverrideProcessor, {
      defaultValue: { mode: 'thresholds' },
    }),
    standardOption('nullValueMode', identityOverrideProcessor),
  ];
}

export function setUpRegistries() {
  standardFieldConfigEditorRegistry.setInit(standardOptions);
  standardTransformersRegistry.setInit(() => {
    const byId = new Map(Object.values(standardTransformers).map((one) => [one.id, one]));
    return [...byId.values()].map((one) => ({
      id: one.id,
      name: one.name,
      transformation: () => Promise.resolve(one),
      editor: nothing,
    }));
  });
}

// Known to Grafana, without a default value.
const UNSET = undefined;
const HIDE_FROM = { tooltip: false, viz: false, legend: false };
const AXIS = {
  axisPlacement: 'auto',
  axisLabel: '',
  axisWidth: UNSET,
  axisSoftMin: UNSET,
  axisSoftMax: UNSET,
  axisGridShow: UNSET,
  axisCenteredZero: false,
  axisColorMode: 'text',
  axisBorderShow: false,
  scaleDistribution: { type: 'linear' },
};
const GRAPH = {
  ...AXIS,
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  lineStyle: { fill: 'solid' },
  lineColor: UNSET,
  fillOpacity: 0,
  fillColor: UNSET,
  fillBelowTo: UNSET,
  gradientMode: 'none',
  spanNulls: false,
  insertNulls: false,
  showPoints: 'auto',
  showValues: false,
  pointSize: 5,
  pointColor: UNSET,
  pointSymbol: UNSET,
  barAlignment: 0,
  barWidthFactor: 0.6,
  barMaxWidth: UNSET,
  stacking: { mode: 'none', group: 'A' },
  transform: UNSET,
  hideFrom: HIDE_FROM,
  thresholdsStyle: { mode: 'off' },
};
const TABLE = {
  align: 'auto',
  cellOptions: { type: 'auto' },
  width: UNSET,
  minWidth: UNSET,
  filterable: UNSET,
  hidden: UNSET,
  hideFrom: HIDE_FROM,
  inspect: false,
  wrapText: UNSET,
  wrapHeaderText: UNSET,
  footer: { reducers: [] },
  tooltip: UNSET,
  styleField: UNSET,
  cellHeight: UNSET,
  maxHeight: UNSET,
};
const TIMELINE = {
  lineWidth: 0,
  fillOpacity: 70,
  hideFrom: HIDE_FROM,
  spanNulls: false,
  insertNulls: false,
  ...AXIS,
};
const REDUCE = { values: false, calcs: ['lastNotNull'], fields: '' };
const LEGEND = { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] };
const SINGLE = { reduceOptions: REDUCE, orientation: 'auto', text: UNSET };
const OVER_TIME = { timezone: UNSET, annotations: UNSET };

// Options without effect on a still picture are listed, too: they are known.
const TYPES = {
  stat: {
    options: {
      ...SINGLE,
      graphMode: 'area',
      colorMode: 'value',
      justifyMode: 'auto',
      textMode: 'auto',
      wideLayout: true,
      showPercentChange: false,
      percentChangeColorMode: 'standard',
    },
    custom: {},
    color: 'thresholds',
    migrate: sharedSingleStatMigrationHandler,
  },
  gauge: {
    options: {
      ...SINGLE,
      showThresholdMarkers: true,
      showThresholdLabels: false,
      sizing: 'auto',
      minVizWidth: 75,
      minVizHeight: 75,
      barShape: UNSET,
      barWidthFactor: UNSET,
      effects: UNSET,
      endpointMarker: UNSET,
      neutral: UNSET,
      segmentCount: UNSET,
      segmentSpacing: UNSET,
      shape: UNSET,
      sparkline: UNSET,
      textMode: UNSET,
    },
    custom: { neutral: UNSET },
    color: 'thresholds',
    migrate: sharedSingleStatMigrationHandler,
  },
  bargauge: {
    options: {
      ...SINGLE,
      displayMode: 'gradient',
      valueMode: 'color',
      namePlacement: 'auto',
      showUnfilled: true,
      sizing: 'auto',
      minVizWidth: 8,
      minVizHeight: 16,
      maxVizHeight: 300,
      legend: { ...LEGEND, showLegend: false },
    },
    custom: {},
    color: 'thresholds',
    migrate: sharedSingleStatMigrationHandler,
  },
  timeseries: {
    options: {
      ...OVER_TIME,
      legend: LEGEND,
      tooltip: { mode: 'single', sort: 'none' },
      orientation: UNSET,
      timeCompare: UNSET,
      disableKeyboardEvents: UNSET,
    },
    custom: GRAPH,
    color: 'palette-classic',
  },
  barchart: {
    options: {
      xField: UNSET,
      colorByField: UNSET,
      orientation: 'auto',
      stacking: 'none',
      showValue: 'auto',
      barWidth: 0.97,
      barRadius: 0,
      groupWidth: 0.7,
      fullHighlight: false,
      xTickLabelRotation: 0,
      xTickLabelMaxLength: UNSET,
      xTickLabelSpacing: 0,
      legend: LEGEND,
      tooltip: { mode: 'single', sort: 'none' },
      text: UNSET,
    },
    custom: {
      ...AXIS,
      lineWidth: 1,
      fillOpacity: 80,
      gradientMode: 'none',
      hideFrom: HIDE_FROM,
      thresholdsStyle: { mode: 'off' },
    },
    color: 'palette-classic',
  },
  heatmap: {
    options: {
      annotations: UNSET,
      calculate: false,
      calculation: UNSET,
      cellGap: 1,
      cellRadius: UNSET,
      cellValues: {},
      color: {
        mode: 'scheme',
        scheme: 'Oranges',
        fill: 'dark-orange',
        scale: 'exponential',
        reverse: false,
        exponent: 0.5,
        steps: 64,
      },
      exemplars: { color: 'rgba(255,0,255,0.7)' },
      filterValues: { le: 1e-9 },
      legend: { show: true },
      rowsFrame: UNSET,
      selectionMode: 'x',
      showValue: 'auto',
      tooltip: { mode: 'single', yHistogram: false, showColorScale: false },
      yAxis: { axisPlacement: 'left' },
    },
    custom: { hideFrom: HIDE_FROM, scaleDistribution: { type: 'linear' } },
    color: 'thresholds',
  },
  table: {
    options: {
      showHeader: true,
      cellHeight: 'sm',
      sortBy: [],
      frameIndex: 0,
      showTypeIcons: false,
      footer: UNSET,
      frozenColumns: UNSET,
      enablePagination: UNSET,
      pageSize: UNSET,
      maxRowHeight: UNSET,
      disableKeyboardEvents: UNSET,
    },
    custom: TABLE,
    color: 'thresholds',
  },
  'state-timeline': {
    options: {
      ...OVER_TIME,
      mergeValues: true,
      showValue: 'auto',
      alignValue: 'left',
      rowHeight: 0.9,
      perPage: 20,
      legend: LEGEND,
      tooltip: { mode: 'single', sort: 'none' },
    },
    custom: TIMELINE,
    color: 'thresholds',
  },
  'status-history': {
    options: {
      ...OVER_TIME,
      showValue: 'auto',
      rowHeight: 0.9,
      colWidth: 0.9,
      perPage: 20,
      legend: LEGEND,
      tooltip: { mode: 'single', sort: 'none' },
    },
    custom: { ...TIMELINE, lineWidth: 1 },
    color: 'thresholds',
  },
  text: { options: { mode: 'markdown', content: '', code: UNSET, renderMode: UNSET } },
};

export const supportedTypes = [...Object.keys(TYPES), 'row'];

const addCustom = (defaults) => (builder) => {
  for (const [path, defaultValue] of Object.entries(defaults)) {
    builder.addCustomEditor({
      id: path,
      path,
      name: path,
      editor: nothing,
      override: nothing,
      process: identityOverrideProcessor,
      shouldApply: () => true,
      defaultValue,
      settings: {},
    });
  }
};

const made = {};

export function pluginFor(type) {
  if (!TYPES[type]) return null;
  made[type] ??= makePlugin(type, TYPES[type]);
  return made[type];
}

function makePlugin(type, { options, custom, color, migrate }) {
  const plugin = new PanelPlugin(nothing);
  plugin.meta = { id: type, name: type, info: {} };
  Object.defineProperty(plugin, 'defaults', { get: () => options });
  if (custom) {
    plugin.useFieldConfig({
      standardOptions: { color: { defaultValue: { mode: color } } },
      useCustomConfig: addCustom(custom),
    });
  }
  plugin.migrate = migrate;
  return plugin;
}

const CELLS = {
  auto: { type: 'auto' },
  basic: { type: 'gauge', mode: 'basic' },
  'gradient-gauge': { type: 'gauge', mode: 'gradient' },
  'lcd-gauge': { type: 'gauge', mode: 'lcd' },
  'color-background': { type: 'color-background', mode: 'gradient' },
  'color-background-solid': { type: 'color-background', mode: 'basic' },
  'color-text': { type: 'color-text' },
  'json-view': { type: 'json-view' },
  image: { type: 'image' },
};
const cell = (mode) => CELLS[mode] ?? { type: 'auto' };

function migrateTable({ defaults, overrides }) {
  const { custom } = defaults;
  if (custom?.displayMode) {
    custom.cellOptions = cell(custom.displayMode);
    delete custom.displayMode;
  }
  if (custom?.hidden !== undefined) {
    custom.hideFrom = { ...HIDE_FROM, viz: custom.hidden };
    delete custom.hidden;
  }
  for (const property of overrides.flatMap((override) => override.properties ?? [])) {
    const { id, value } = property;
    if (id === 'custom.hidden') {
      Object.assign(property, { id: 'custom.hideFrom', value: { ...HIDE_FROM, viz: value } });
    } else if (id === 'custom.displayMode') {
      Object.assign(property, { id: 'custom.cellOptions', value: cell(value) });
    }
  }
}

/** What Grafana's own migrations do on load to a panel without a pluginVersion. */
export function migratePanel(panel, plugin) {
  panel.options ??= {};
  panel.fieldConfig = { defaults: {}, overrides: [], ...panel.fieldConfig };
  if (plugin.migrate) panel.options = plugin.migrate(panel) ?? panel.options;
  if (panel.type === 'table') migrateTable(panel.fieldConfig);
  const { legend } = panel.options;
  if (legend?.displayMode === 'hidden') {
    Object.assign(legend, { displayMode: 'list', showLegend: false });
  }
}
