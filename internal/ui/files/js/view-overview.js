// Health at a glance: the server, nodes, pods by phase, workloads short of replicas, and warnings.

import { h, replace, perFrame } from './dom.js';
import { t, age } from './i18n.js';
import * as api from './api.js';
import { pods, nodes, events, deployments, statefulSets, daemonSets, listLink, objectLink } from './kinds.js';
import { Live } from './live.js';
import { state, short, toneOf } from './tone.js';
import { explain } from './view-list.js';

const recent = 10 * 60 * 1000;
const most = 12; // lines of a tile

export function overview(root, ns) {
  const tiles = [server(), nodesTile(), podsTile(ns), workloadsTile(ns), warningsTile(ns)];
  replace(root, h('h1', { text: t('overview') }), h('div', { class: 'tiles' }, tiles.map((tile) => tile.el)));
  return () => tiles.forEach((tile) => tile.stop());
}

function tile(title, href, wide) {
  const body = h('div', { class: 'tile-body' });
  const heading = href ? h('a', { href, text: title }) : title;
  return { el: h('section', { class: wide ? 'tile wide' : 'tile' }, h('h2', {}, heading), body), body };
}

const whyLink = (kind, r) => h('a', { class: 'why', href: objectLink(kind, r.ns, r.name, 'why'), 'aria-label': `${t('why')} ${r.name}`, text: t('why') });

// column returns the value of a row's column.
const column = (live, row, name) => row.cells[live.columns.findIndex((c) => c.name === name)];

// following returns a tile that draws the rows of some kinds.
function following(title, href, wanted, draw, wide) {
  const { el, body } = tile(title, href, wide);
  let lives = [];
  const redraw = perFrame(() => {
    const failed = lives.find((l) => l.error);
    replace(body, failed ? h('p', { class: 'faint', text: explain(failed.error, failed.kind, failed.ns) }) : draw(lives));
  });
  lives = wanted.map(([kind, ns, options]) => new Live(kind, ns, options, redraw));
  return { el, stop: () => lives.forEach((l) => l.stop()) };
}

function server() {
  const { el, body } = tile(t('tile.server'));
  const draw = async () => {
    const [version, ready] = await Promise.all([api.json('/version').catch((err) => err), api.text('/readyz?verbose').then((text) => ({ text }), (err) => ({ err }))]);
    const failed = (ready.text ?? ready.err?.message ?? '').split('\n').filter((line) => line.startsWith('[-]'));
    replace(body,
      h('p', { class: 'figure' }, ready.text ? state(t('ready'), 'good') : ready.err.status === 403 ? t('unknown') : state(t('notready'), 'bad')),
      h('p', { class: 'faint', text: version.gitVersion ?? version.message }),
      failed.length > 0 && h('ul', {}, failed.map((line) => h('li', { text: line }))));
  };
  draw();
  const timer = setInterval(draw, 15000);
  return { el, stop: () => clearInterval(timer) };
}

function figure(some, all, tone) {
  return h('p', { class: 'figure' }, state(all === undefined ? String(some) : `${some} / ${all}`, tone));
}

function nodesTile() {
  return following(t('section.nodes'), listLink(nodes), [[nodes, '', {}]], ([live]) => {
    const rows = [...live.rows.values()];
    const off = rows.filter((r) => toneOf(column(live, r, 'Status')) !== 'good');
    return [figure(rows.length - rows.filter((r) => !String(column(live, r, 'Status')).startsWith('Ready')).length, rows.length, off.length ? 'busy' : 'good'),
      h('ul', {}, off.slice(0, most).map((r) => h('li', {}, h('a', { href: objectLink(nodes, '', r.name), text: r.name }), ' ', state(column(live, r, 'Status'), 'bad'), whyLink(nodes, r))))];
  });
}

function podsTile(ns) {
  return following(t('section.pods'), listLink(pods), [[pods, ns, {}]], ([live]) => {
    const count = new Map();
    for (const r of live.rows.values()) {
      const status = String(column(live, r, 'Status'));
      count.set(status, (count.get(status) ?? 0) + 1);
    }
    const order = { bad: 0, busy: 1, '': 2, good: 3 };
    const sorted = [...count].sort((a, b) => order[toneOf(a[0])] - order[toneOf(b[0])] || b[1] - a[1]);
    return [figure(live.rows.size, undefined, ''), sorted.some(([status]) => ['bad', 'busy'].includes(toneOf(status))) && h('p', {}, h('a', { href: '#/why', text: t('section.why') })), h('ul', {}, sorted.slice(0, most).map(([status, n]) => h('li', {}, state(status), ' ', h('b', { text: n }))))];
  });
}

function workloadsTile(ns) {
  const wanted = [[deployments, ns, {}], [statefulSets, ns, {}], [daemonSets, ns, {}]];
  return following(t('tile.workloads'), listLink(deployments), wanted, (lives) => {
    let all = 0;
    const off = [];
    for (const live of lives) {
      for (const r of live.rows.values()) {
        all++;
        let ready = String(column(live, r, 'Ready'));
        if (live.kind === daemonSets) ready += `/${column(live, r, 'Desired')}`;
        if (short(ready)) off.push([live.kind, r, ready]);
      }
    }
    return [figure(all - off.length, all, off.length ? 'busy' : 'good'),
      h('ul', {}, off.slice(0, most).map(([kind, r, ready]) => h('li', {}, h('a', { href: objectLink(kind, r.ns, r.name), text: `${r.ns}/${r.name}` }), ' ', state(ready, 'busy'), whyLink(kind, r))))];
  });
}

function warningsTile(ns) {
  return following(t('tile.warnings'), listLink(events), [[events, ns, { fieldSelector: 'type=Warning' }]], ([live]) => {
    const since = Date.now() - recent;
    const rows = [...live.rows.values()].filter((r) => Date.parse(r.changed) > since).sort((a, b) => (a.changed < b.changed ? 1 : -1));
    if (!rows.length) return h('p', { class: 'faint', text: t('tile.nowarnings') });
    return h('ul', {}, rows.slice(0, most).map((r) => h('li', {}, h('span', { class: 'faint', text: `${age(r.changed)} ` }),
      h('a', { href: objectLink(events, r.ns, r.name), text: `${r.ns ? r.ns + '/' : ''}${column(live, r, 'Object')}` }), ' ', state(column(live, r, 'Reason'), 'busy'), ' ', column(live, r, 'Message'))));
  }, true);
}
