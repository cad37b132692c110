// A change as a waterfall: each hop with its maker, its time and its cause.

import { h, replace } from './dom.js';
import { t, when } from './i18n.js';
import { asking, identity, linkOf, duration } from './insight.js';

const most = 2000; // rows that are drawn

// trace is the tab of an object: its last change, or the change of a revision.
export function trace(body, context) {
  return follow(body, identity(context));
}

// traceView shows what came of one change, by its revision or its audit ID.
export function traceView(root, change) {
  const body = h('div', { class: 'panel' });
  replace(root, h('h1', { text: t('trace.title', { change }) }), body);
  return follow(body, { change });
}

function follow(body, query) {
  const answer = h('div', { class: 'answer' });
  let stop = () => {};
  const again = () => {
    stop();
    stop = asking(answer, 'story', query, draw);
  };
  replace(body, h('div', { class: 'bar' }, h('button', { onclick: again, text: t('why.again') }), h('span', { class: 'faint', text: t('trace.about') })), answer);
  again();
  return () => stop();
}

function draw(tree) {
  const rows = [];
  const walk = (hops, depth) => (hops ?? []).forEach((hop) => {
    rows.push([hop, depth]);
    walk(hop.hops, depth + 1);
  });
  walk(tree.hops, 0);
  if (!rows.length) return h('p', { class: 'faint', text: t('trace.nothing') });
  const began = Date.parse(tree.began);
  const whole = Math.max(tree.tookNanoseconds / 1e6, 1);
  const longest = Math.max(...rows.map(([hop]) => Date.parse(hop.at) - Date.parse(hop.begin)));
  const notes = [tree.truncated && t('trace.truncated'), tree.hidden && t('hidden', { count: tree.hidden }), ...Object.entries(tree.missing ?? {}).map(([server, reason]) => t('trace.missing', { server, reason }))].filter(Boolean);
  return [
    h('p', {}, t('trace.sum', { when: when(tree.began), took: duration(whole), writes: tree.writes })),
    notes.map((text) => h('p', { class: 'faint', text })),
    h('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': t('tab.trace') }, h('table', { class: 'waterfall' },
      h('thead', {}, h('tr', {}, [t('trace.hop'), t('trace.maker'), t('trace.after'), t('trace.took'), t('trace.bar')].map((text) => h('th', { scope: 'col', text })))),
      h('tbody', {}, rows.slice(0, most).map(([hop, depth]) => row(hop, depth, began, whole, longest))))),
    rows.length > most && h('p', { class: 'faint', text: t('count.of', { some: most, all: rows.length }) }),
  ];
}

function row(hop, depth, began, whole, longest) {
  const begin = Date.parse(hop.begin);
  const at = Date.parse(hop.last ?? hop.at);
  const took = Math.max(0, Date.parse(hop.at) - begin);
  const bar = h('div', { class: `bar-of-time ${took === longest && took > 0 ? 'longest' : hop.revision ? '' : 'step'}` });
  bar.style.setProperty('--from', `${(100 * (begin - began)) / whole}%`);
  bar.style.setProperty('--width', `${Math.max(0.4, (100 * (at - begin)) / whole)}%`);
  const times = hop.times > 1 ? ` ×${hop.times}` : '';
  const step = h('div', { class: 'step-of-tree' }, linkOf(hop), ` ${hop.what}${times}`, hop.inferred && h('span', { class: 'faint', text: ` ${t('trace.inferred')}` }), hop.source !== 'causal log' && h('span', { class: 'faint', text: ` (${hop.source})` }));
  step.style.setProperty('--depth', depth);
  return h('tr', {},
    h('td', {}, step),
    h('td', { title: hop.actor }, hop.maker ?? ''),
    h('td', { class: 'number', title: when(hop.at), text: `+${duration(Math.max(0, Date.parse(hop.at) - began))}` }),
    h('td', { class: 'number', text: duration(took) }),
    h('td', { class: 'bars' }, bar));
}
