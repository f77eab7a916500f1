import { BarChart } from './barchart.jsx';
import { Gauge } from './gauge.jsx';
import { Series, Table } from './graph.jsx';
import { Heatmap } from './heatmap.jsx';
import { BarGaugePanel, Stat, Text } from './single.jsx';
import { StateTimeline, StatusHistory } from './timeline.jsx';

export const components = {
  stat: Stat,
  gauge: Gauge,
  bargauge: BarGaugePanel,
  timeseries: Series,
  barchart: BarChart,
  heatmap: Heatmap,
  table: Table,
  'state-timeline': StateTimeline,
  'status-history': StatusHistory,
  text: Text,
};

/** These draw the noValue text themselves; the others are replaced by it. */
export const drawsNoValue = new Set(['stat', 'gauge', 'bargauge', 'text']);
