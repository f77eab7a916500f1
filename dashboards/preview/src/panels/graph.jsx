// Time series and table: Grafana's own components.
import { TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

import { drawEvents } from '../annotations.js';

const SELECTOR_HEIGHT = 40;
// Cells beyond are not in the page and cannot be measured; more are slow to draw.
const MEASURED_ROWS = 400;

const hooked = new WeakSet();

export function Series({ ctx }) {
  const { options, frames, range, timeZone, width, height, events } = ctx;
  const addEvents = (builder) => {
    if (events.length && !hooked.has(builder)) builder.addHook('draw', drawEvents(events));
    hooked.add(builder);
    return null;
  };
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      timeRange={range}
      timeZone={timeZone}
      width={width}
      height={height}
      legend={options.legend}
      options={options}
    >
      {addEvents}
    </TimeSeries>
  );
}

function FrameSelector({ frame, count, theme }) {
  const style = {
    margin: 8,
    padding: '4px 8px',
    border: `1px solid ${theme.colors.border.medium}`,
    borderRadius: 2,
    fontSize: 13,
    width: '50%',
  };
  return (
    <div style={style}>
      {frame.name ?? frame.refId ?? 'frame 1'} ▾ ({count} frames)
    </div>
  );
}

export function Table({ ctx }) {
  const { options, frames, width, height, theme } = ctx;
  const frame = frames[options.frameIndex] ?? frames[0];
  const many = frames.length > 1;
  return (
    <div>
      <TableNG
        data={frame}
        width={width}
        height={many ? height - SELECTOR_HEIGHT : height}
        noHeader={!options.showHeader}
        showTypeIcons={options.showTypeIcons}
        resizable
        sortBy={options.sortBy}
        cellHeight={options.cellHeight}
        maxRowHeight={options.maxRowHeight}
        frozenColumns={options.frozenColumns?.left}
        enablePagination={options.enablePagination ?? options.footer?.enablePagination}
        timeRange={ctx.range}
        fieldConfig={ctx.fieldConfig}
        structureRev={1}
        getActions={() => []}
        disableSanitizeHtml={false}
        enableVirtualization={frame.length > MEASURED_ROWS}
      />
      {many && <FrameSelector frame={frame} count={frames.length} theme={theme} />}
    </div>
  );
}
