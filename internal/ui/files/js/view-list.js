// The list of a kind: kubectl's columns, a filter, and rows that stay current.

import { h, replace, say, later } from './dom.js';
import { t, age } from './i18n.js';
import { allowed } from './api.js';
import { sections, listLink, objectLink, events } from './kinds.js';
import { Live } from './live.js';
import { Grid } from './grid.js';
import { state, short, toneOf } from './tone.js';

const states = new Set(['Status', 'Phase', 'Type', 'State']);
const filters = new Map(); // text by kind, for the way back

// list draws the view and returns the function that ends it.
export function list(root, kind, ns) {
  const section = sections.find((s) => s.kinds.includes(kind));
  const table = objects(kind, ns, {});
  replace(root,
    h('div', { class: 'bar' },
      h('h1', { text: section && section.kinds.length > 1 ? t(`section.${section.id}`) : kind.kind }),
      section && section.kinds.length > 1 && h('div', { class: 'tabs', role: 'navigation', 'aria-label': t('kind') },
        section.kinds.map((k) => h('a', { href: listLink(k), 'aria-current': k === kind ? 'page' : null, text: k.kind }))),
      h('span', { class: 'fill' }), kind !== events && createLink(kind, ns)),
    table.parts);
  table.grid.el.focus({ preventScroll: true });
  return table.stop;
}

// createLink leads to the editor of new objects, with the right to create them.
function createLink(kind, ns) {
  const a = h('a', { href: '#/create', class: 'action', hidden: true, text: t('section.create') });
  allowed('create', kind, kind.namespaced ? ns || 'default' : '').then((may) => (a.hidden = !may));
  return a;
}

// objects returns a filtered live table. options are those of Live.
export function objects(kind, ns, options) {
  const name = `${kind.group}/${kind.resource}`;
  const isEvents = kind === events;
  const field = h('input', { id: 'filter', type: 'search', value: filters.get(name) ?? '', placeholder: t('filter'), 'aria-label': t('filter'), title: t('filter.about'), spellcheck: false });
  const count = h('span', { class: 'faint count', role: 'status' });
  const trouble = h('p', { class: 'problem', role: 'alert', hidden: true });
  const grid = new Grid({
    label: kind.kind,
    open: (row) => (location.hash = objectLink(kind, row.ns, row.name)),
    cell: (row, column) => cell(row, column, isEvents ? null : kind),
  });
  if (!isEvents) {
    grid.el.addEventListener('keydown', (e) => {
      const row = grid.rows[grid.at];
      if (e.key === 'w' && row && !e.ctrlKey && !e.metaKey && !e.altKey) location.hash = objectLink(kind, row.ns, row.name, 'why');
    });
  }
  let live;

  const draw = () => {
    grid.setColumns(columnsOf(kind, live.columns, kind.namespaced && !ns, isEvents));
    const match = matcher(field.value);
    const rows = [...live.rows.values()].filter(match);
    if (isEvents) rows.sort((a, b) => (a.changed < b.changed ? 1 : a.changed > b.changed ? -1 : 0));
    else rows.sort((a, b) => (a.key < b.key ? -1 : 1));
    grid.setRows(rows);
    const some = rows.length === live.rows.size ? String(rows.length) : t('count.of', { some: rows.length, all: live.rows.size });
    count.textContent = live.state === 'loading' ? t('count.loading', { some }) : some;
    grid.el.setAttribute('aria-busy', live.state === 'loading');
    trouble.hidden = !live.error;
    trouble.textContent = live.error ? explain(live.error, kind, ns) : '';
  };
  const announce = later(800, () => say(t('count.shown', { count: grid.rows.length })));
  field.addEventListener('input', () => {
    filters.set(name, field.value);
    draw();
    announce();
  });
  field.addEventListener('keydown', (e) => e.key === 'Enter' && grid.el.focus());
  live = new Live(kind, kind.namespaced ? ns : '', options, draw);
  // Ages grow without changes of objects.
  const ages = setInterval(() => {
    for (const el of grid.el.querySelectorAll('[data-since]')) el.textContent = age(el.dataset.since);
  }, 10000);
  return {
    grid,
    live,
    parts: [h('div', { class: 'bar' }, field, count), trouble, grid.el],
    stop: () => {
      live.stop();
      grid.destroy();
      clearInterval(ages);
    },
  };
}

// explain says in words why a call failed.
export function explain(err, kind, ns) {
  if (err.status === 403) return t('forbidden', { kind: kind.resource, where: ns ? t('in.namespace', { ns }) : t('in.all'), message: err.message });
  if (err.status) return err.message;
  return t('offline', { message: err.message });
}

// columnsOf returns the columns for a Table's definitions: those that kubectl shows, and node and IP
// of pods.
function columnsOf(kind, definitions, withNamespace, isEvents) {
  const wide = kind.resource === 'pods' ? ['IP', 'Node'] : [];
  const shown = definitions.map((d, at) => ({ ...d, at })).filter((d) => d.priority === 0 || wide.includes(d.name));
  const columns = shown.map((d) => ({ name: d.name, at: d.at, about: d.description, width: widthOf(d, isEvents) }));
  if (withNamespace) columns.splice(isEvents ? columns.length : 1, 0, { name: t('namespace'), at: -1, width: 'minmax(90px, 1fr)' });
  return columns;
}

function widthOf(d, isEvents) {
  if (d.name === 'Name') return 'minmax(180px, 2.5fr)';
  if (isEvents) return { Message: 'minmax(240px, 5fr)', Object: 'minmax(160px, 2fr)' }[d.name] ?? 'minmax(80px, 1fr)';
  if (d.type === 'integer' || ['Age', 'Ready'].includes(d.name)) return 'minmax(60px, .6fr)';
  return 'minmax(80px, 1fr)';
}

// cell returns the content of a cell. A state that is not well leads to its reason, if kind is given.
function cell(row, column, kind) {
  if (column.at < 0) return row.ns;
  const value = row.cells[column.at];
  if (column.name === 'Age') return h('span', { 'data-since': row.created, title: row.created }, age(row.created));
  if (column.name === 'Last Seen') return h('span', { 'data-since': row.changed, title: row.changed }, age(row.changed));
  const text = value === null || value === undefined ? '' : String(value);
  if (states.has(column.name) && toneOf(text)) return toneOf(text) === 'good' ? state(text) : [state(text), whyLink(kind, row)];
  if (column.name === 'Ready' && short(text)) return [state(text, 'busy'), whyLink(kind, row)];
  return text;
}

// whyLink leads to the reason of a row's state by a click; the key w does the same.
const whyLink = (kind, row) => kind && h('a', { class: 'why', href: objectLink(kind, row.ns, row.name, 'why'), tabIndex: -1, onclick: (e) => e.stopPropagation(), text: t('why') });

// matcher returns a predicate for words that all must match: `key=value` is a label, and
// `key=` any value of it; other words are a part of the name, namespace or a column.
export function matcher(text) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    const [key, value] = word.split('=');
    if (value !== undefined) return (row) => row.labels?.[key] !== undefined && (value === '' || row.labels[key] === value);
    const lower = word.toLowerCase();
    return (row) => row.key.toLowerCase().includes(lower) || row.cells.some((c) => typeof c === 'string' && c.toLowerCase().includes(lower));
  });
  return (row) => tests.every((test) => test(row));
}
