// What can be told only from what was drawn: text that does not fit.

// Rounding of text widths is no fault.
const TOLERANCE = 2;

const isHidden = (overflow) => overflow !== 'visible';

function ownText(element) {
  const texts = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
  return texts
    .map((node) => node.textContent)
    .join('')
    .trim();
}

/** The elements under a root that hold text of their own. */
function textElements(root) {
  return [...root.querySelectorAll('*')].filter((element) => {
    // What is there for screen readers only is a box of one pixel.
    const { width, height } = element.getBoundingClientRect();
    return ownText(element) && width > 1 && height > 1;
  });
}

/** The text's rectangle; an element's own box says nothing about what runs out of it. */
function textBox(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getBoundingClientRect();
}

/** By how many pixels an ancestor up to the root cuts a text off, or its own ellipsis does. */
function cutPixels(element, root) {
  const text = textBox(element);
  let cut = 0;
  for (let box = element; box; box = box.parentElement) {
    const style = getComputedStyle(box);
    if (isHidden(style.overflowX) && style.display !== 'inline') {
      const { left, right } = box.getBoundingClientRect();
      cut = Math.max(cut, text.right - right, left - text.left);
    }
    if (box === root) break;
  }
  return cut;
}

const quote = (element) => JSON.stringify(ownText(element).slice(0, 60));

function measureTable(content, issue) {
  const cells = content.querySelectorAll('[role="columnheader"], [role="gridcell"]');
  const perColumn = new Map();
  for (const cell of cells) {
    for (const element of textElements(cell)) {
      const cut = cutPixels(element, cell);
      if (cut <= TOLERANCE) continue;
      const column = cell.getAttribute('aria-colindex');
      const before = perColumn.get(column) ?? { count: 0, cut: 0 };
      const worst = cut > before.cut ? { cut, text: quote(element) } : before;
      perColumn.set(column, { ...worst, count: before.count + 1 });
    }
  }
  for (const [column, { count, cut, text }] of perColumn) {
    const message = `column ${column}: ${text} by ${Math.ceil(cut)} px; ${count} in all`;
    issue('table-cut-off', message);
  }
  const grid = content.querySelector('[role="grid"], [role="treegrid"]');
  if (grid && grid.scrollWidth > grid.clientWidth + TOLERANCE) {
    const beyond = grid.scrollWidth - grid.clientWidth;
    issue('table-cut-off', `its columns are ${beyond} px wider than the panel`);
  }
}

function measureSingle(content, issue) {
  const frame = content.getBoundingClientRect();
  for (const element of textElements(content)) {
    const { left, right, top, bottom } = textBox(element);
    // A line's box is higher than its letters; half of that may be outside.
    const slack = (bottom - top) * 0.2 + TOLERANCE;
    const beyond = Math.max(frame.left - left, right - frame.right);
    const vertical = Math.max(frame.top - top, bottom - frame.bottom);
    const cut = Math.max(beyond, cutPixels(element, content));
    if (cut > TOLERANCE) issue('text-cut-off', `${quote(element)} by ${Math.ceil(cut)} px`);
    else if (vertical > slack) {
      issue('text-cut-off', `${quote(element)} by ${Math.ceil(vertical)} px in height`);
    }
  }
}

function measureText(content, issue) {
  const box = content.querySelector('[data-check="scroll"]');
  if (!box) return;
  const down = box.scrollHeight - box.clientHeight;
  const right = box.scrollWidth - box.clientWidth;
  if (down > TOLERANCE) issue('text-cut-off', `${down} px of its text are below its end`);
  if (right > TOLERANCE) issue('text-cut-off', `its text is ${right} px too wide`);
}

function measureLegend(content, issue) {
  for (const element of textElements(content)) {
    const cut = cutPixels(element, content);
    if (cut > TOLERANCE) {
      issue('legend-cut-off', `${quote(element)} by ${Math.ceil(cut)} px`, 'warning');
    }
  }
}

const MEASURES = {
  table: measureTable,
  stat: measureSingle,
  gauge: measureSingle,
  bargauge: measureSingle,
  text: measureText,
};

function measureTitle(frame, title, issue) {
  const heading = [...frame.querySelectorAll('h2, [data-testid*="header"] *')].find(
    (element) => ownText(element) === title.trim(),
  );
  if (!heading) return;
  const cut = Math.max(cutPixels(heading, frame), heading.scrollWidth - heading.clientWidth);
  if (cut > TOLERANCE) issue('title-cut-off', `by ${Math.ceil(cut)} px`);
}

export function measurePanels(panels) {
  panels.forEach((prepared, index) => {
    const frame = document.querySelector(`[data-panel="${index}"]`);
    const content = frame?.querySelector('[data-content]');
    if (!content) return;
    measureTitle(frame, prepared.title, prepared.issue);
    if (prepared.error) return;
    (MEASURES[prepared.panel.type] ?? measureLegend)(content, prepared.issue);
  });
}
