// Rows and repeats -> a flat list of {panel, scoped, x, y, w, h} in grid units.
export const CELL = 30;
export const GAP = 8;
export const COLUMNS = 24;
export const PADDING = 16;

export const columnWidth = (width) => (width - 2 * PADDING - GAP * (COLUMNS - 1)) / COLUMNS;
export const pixelWidth = (columns, width) => columns * (columnWidth(width) + GAP) - GAP;
export const pixelHeight = (rows) => rows * (CELL + GAP) - GAP;

function inReadingOrder(panels) {
  const at = (panel) => [panel.gridPos?.y ?? 0, panel.gridPos?.x ?? 0];
  return [...panels].sort((a, b) => at(a)[0] - at(b)[0] || at(a)[1] - at(b)[1]);
}

function repeated(panel, grid, vars) {
  const values = vars.values(panel.repeat);
  const vertical = panel.repeatDirection === 'v';
  const perLine = vertical ? 1 : Math.min(values.length, panel.maxPerRow || 4);
  const w = vertical ? grid.w : Math.floor(COLUMNS / perLine);
  const items = values.map((value, i) => ({
    panel,
    scoped: { [panel.repeat]: { value, text: vars.text(panel.repeat, value) } },
    x: vertical ? grid.x : (i % perLine) * w,
    y: grid.y + Math.floor(i / perLine) * grid.h,
    w,
    h: grid.h,
  }));
  const lines = Math.ceil(values.length / perLine) || 0;
  return { items, extra: Math.max(0, lines - 1) * grid.h };
}

export function layOut(dashboard, vars, issueFor) {
  const items = [];
  let shift = 0;
  let bottom = 0;
  for (const panel of inReadingOrder(dashboard.panels ?? [])) {
    const issue = issueFor({ panel: panel.title, id: panel.id, type: panel.type });
    if (!panel.gridPos) issue('no-gridpos', 'panel has no gridPos', 'warning');
    const grid = { ...(panel.gridPos ?? { x: 0, y: bottom, w: 12, h: 8 }) };
    bottom = Math.max(bottom, grid.y + grid.h);
    grid.y += shift;
    if (panel.type === 'row') {
      items.push({ panel, scoped: {}, x: 0, y: grid.y, w: COLUMNS, h: 1 });
      if (panel.repeat) issue('unsupported-row-repeat', panel.repeat);
    } else if (!panel.repeat) {
      items.push({ panel, scoped: {}, ...grid });
    } else if (!vars.get(panel.repeat)) {
      issue('repeat-variable-unknown', panel.repeat);
    } else {
      const { items: copies, extra } = repeated(panel, grid, vars);
      items.push(...copies);
      shift += extra;
    }
  }
  reportOverlaps(items, issueFor);
  return items;
}

function reportOverlaps(items, issueFor) {
  const meet = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  items.forEach((a, i) => {
    for (const b of items.slice(i + 1)) {
      if (!meet(a, b)) continue;
      const issue = issueFor({ panel: a.panel.title, id: a.panel.id, type: a.panel.type });
      issue('overlap', `overlaps ${JSON.stringify(b.panel.title)}`, 'warning');
    }
  });
}
