// Parts of summaries: pairs of names and values, and tables.

import { h } from './dom.js';

export function pairs(title, entries) {
  const shown = Object.entries(entries ?? {}).filter(([, v]) => v !== undefined && v !== '');
  return shown.length > 0 && h('section', {}, h('h2', { text: title }), h('dl', { class: 'pairs' }, shown.map(([k, v]) => [h('dt', { text: k }), h('dd', {}, v instanceof Node ? v : String(v))])));
}

export function table(title, heads, rows) {
  if (!rows.length) return null;
  const head = h('thead', {}, h('tr', {}, heads.map((x) => h('th', { scope: 'col', text: x }))));
  const body = h('tbody', {}, rows.map((r) => h('tr', {}, r.map((x) => h('td', {}, x)))));
  return h('section', {}, h('h2', { text: title }), h('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': title }, h('table', {}, head, body)));
}
