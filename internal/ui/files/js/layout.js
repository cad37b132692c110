// The layout of the map: a component stands to the right of all that depend on it.

export const box = { width: 190, height: 46 };
const gap = { x: 100, y: 18 };
const margin = 20;
const mostRows = 24; // of a column without relations

const key = (id) => `${id.namespace ? id.namespace + '/' : ''}${id.name}`;

// layout returns the places of components by name, and the size of the drawing.
export function layout(g) {
  const after = new Map(g.components.map((c) => [key(c.id), []]));
  const related = new Set();
  for (const r of g.relations ?? []) {
    after.get(key(r.from))?.push(key(r.to));
    related.add(key(r.from)).add(key(r.to));
  }
  const circle = circles(after);
  const layer = new Map();
  // Each round settles at least one layer.
  for (let moved = true, round = 0; moved && round <= after.size; round++) {
    moved = false;
    for (const [from, targets] of after) {
      for (const to of targets) {
        if (circle.get(from) === circle.get(to)) continue;
        const next = (layer.get(circle.get(from)) ?? 0) + 1;
        if ((layer.get(circle.get(to)) ?? 0) < next) {
          layer.set(circle.get(to), next);
          moved = true;
        }
      }
    }
  }
  const columns = [];
  const place = (column, name) => (columns[column] ??= []).push(name);
  const sorted = [...g.components].sort((a, b) => (a.system ?? '').localeCompare(b.system ?? '') || key(a.id).localeCompare(key(b.id)));
  for (const c of sorted) if (related.has(key(c.id))) place(layer.get(circle.get(key(c.id))) ?? 0, key(c.id));
  order(columns, after);
  // Components without relations stand below the others, in rows.
  const alone = sorted.map((c) => key(c.id)).filter((name) => !related.has(name));
  const places = new Map();
  const put = (name, column, row) => places.set(name, { x: margin + column * (box.width + gap.x), y: margin + row * (box.height + gap.y) });
  const tallest = Math.max(0, ...columns.map((c) => c?.length ?? 0));
  columns.forEach((names, column) => names.forEach((name, row) => put(name, column, row + (tallest - names.length) / 2)));
  const across = Math.max(columns.length, Math.ceil(alone.length / mostRows), Math.ceil(Math.sqrt(alone.length / 3)), 1);
  alone.forEach((name, i) => put(name, i % across, tallest + (tallest > 0 ? 0.5 : 0) + Math.floor(i / across)));
  const all = [...places.values()];
  return { places, width: Math.max(...all.map((p) => p.x)) + box.width + 3 * margin, height: Math.max(...all.map((p) => p.y)) + box.height + margin };
}

// order sorts each column by the mean place of the components that depend on its own, which keeps
// lines short.
function order(columns, after) {
  for (let i = 1; i < columns.length; i++) {
    const row = new Map();
    columns.slice(0, i).forEach((names) => names?.forEach((name, at) => row.set(name, at)));
    const mean = new Map();
    for (const [from, targets] of after) if (row.has(from)) for (const to of targets) mean.set(to, [...(mean.get(to) ?? []), row.get(from)]);
    const weight = (name) => (mean.has(name) ? mean.get(name).reduce((a, b) => a + b, 0) / mean.get(name).length : Infinity);
    columns[i] ??= [];
    columns[i].sort((a, b) => weight(a) - weight(b) || 0);
  }
}

// circles returns, for each component, the first one that depends on it and on which it depends.
function circles(after) {
  const reach = new Map();
  for (const start of after.keys()) {
    const seen = new Set();
    const open = [...after.get(start)];
    while (open.length) {
      const name = open.pop();
      if (seen.has(name)) continue;
      seen.add(name);
      open.push(...(after.get(name) ?? []));
    }
    reach.set(start, seen);
  }
  const first = new Map();
  for (const name of after.keys()) {
    if (first.has(name)) continue;
    first.set(name, name);
    if (reach.get(name).has(name)) for (const other of reach.get(name)) if (!first.has(other) && reach.get(other)?.has(name)) first.set(other, name);
  }
  return first;
}
