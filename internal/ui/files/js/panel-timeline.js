// What changed, by whom, with events among the changes; and objects as they were at a time that a
// slider chooses.

import { h, svg, replace, later } from './dom.js';
import { t, when, age } from './i18n.js';
import * as api from './api.js';
import { ask, identity, linkOf, linkTo, trouble, problem } from './insight.js';
import { sections, path, pods, objectLink } from './kinds.js';
import { diff, hunks } from './diff.js';
import { withoutManagers, lines } from './panel-yaml.js';
import { state } from './tone.js';
import { table } from './parts.js';

const pageSize = 200;
const columns = 96; // of the picture of changes
const spans = { '10m': 600e3, '1h': 3600e3, '6h': 6 * 3600e3, '24h': 86400e3, '7d': 7 * 86400e3 };

// timeline is the tab of an object: its changes, and the object as it was beside the present one.
export function timeline(body, context) {
  const { kind, ns, name } = context;
  const then = h('section', { class: 'then', 'aria-live': 'polite', 'aria-label': t('time.then') });
  let turn = 0;
  const show = later(200, async (time) => {
    const own = ++turn;
    try {
      const accept = 'application/yaml';
      const [before, now] = await Promise.all([api.text(path(kind, ns, name), { accept, headers: { 'Knarr-At': time.toISOString() } }), api.text(path(kind, ns, name), { accept }).catch((err) => (err.status === 404 ? '' : Promise.reject(err)))]);
      if (own !== turn) return;
      const changed = hunks(diff(withoutManagers(before), withoutManagers(now)));
      replace(then, h('h2', { text: t('time.since', { when: when(time) }) }), changed.length ? h('div', { class: 'diff' }, lines(changed)) : h('p', { class: 'faint', text: t('time.same') }),
        h('details', {}, h('summary', { text: t('time.whole', { when: when(time) }) }), h('pre', { class: 'code whole', text: withoutManagers(before) })));
    } catch (err) {
      if (own === turn) replace(then, h('p', { class: 'faint', text: err.status === 404 ? t('time.absent', { when: when(time) }) : trouble(err) }));
    }
  });
  return draw(body, identity(context), '24h', show, then);
}

// timelineView shows the changes of a namespace or the cluster, and lists as they were.
export function timelineView(root, ns) {
  const body = h('div', { class: 'panel' });
  const kinds = sections.flatMap((s) => s.kinds).filter((k) => k.resource !== 'events');
  const choice = h('select', { 'aria-label': t('kind'), onchange: () => shown && show(shown) }, kinds.map((k, i) => h('option', { value: i, selected: k === pods }, k.kind)));
  const list = h('div', { 'aria-live': 'polite' });
  let shown;
  let turn = 0;
  const show = later(250, async (time) => {
    shown = time;
    const own = ++turn;
    const kind = kinds[choice.value];
    try {
      const accept = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
      const got = await api.json(`${path(kind, kind.namespaced ? ns : '')}?limit=${pageSize}`, { accept, headers: { 'Knarr-At': time.toISOString() } });
      if (own !== turn) return;
      const heads = got.columnDefinitions.map((c, at) => ({ ...c, at })).filter((c) => c.priority === 0);
      const cell = (row, c) => (c.name === 'Name' ? h('a', { href: objectLink(kind, row.object.metadata.namespace, row.object.metadata.name, 'timeline'), text: row.cells[c.at] }) : c.name === 'Status' ? state(row.cells[c.at]) : c.name === 'Age' ? age(row.object.metadata.creationTimestamp, time) : String(row.cells[c.at] ?? ''));
      replace(list, got.rows?.length ? table(t('time.list', { kind: kind.kind, when: when(time) }), heads.map((c) => c.name), got.rows.map((row) => heads.map((c) => cell(row, c)))) : h('p', { class: 'faint', text: t('time.none', { kind: kind.kind, when: when(time) }) }),
        got.metadata?.continue && h('p', { class: 'faint', text: t('count.first', { count: got.rows.length }) }));
    } catch (err) {
      if (own === turn) replace(list, problem(err));
    }
  });
  replace(root, h('h1', { text: ns ? t('time.namespace', { ns }) : t('time.cluster') }), body);
  return draw(body, { namespace: ns }, '1h', show, h('section', { class: 'then' }, h('div', { class: 'bar' }, h('h2', { text: t('time.then') }), choice), list));
}

// draw shows changes and the slider; at(time) is called when the slider moves.
function draw(body, query, span, at, then) {
  let items = [];
  let until = Date.now();
  let since = until - spans[span];
  let next = '';
  let stopper = new AbortController();
  const list = h('ol', { class: 'changes', tabIndex: 0, 'aria-label': t('tab.timeline') });
  const notes = h('div');
  const picture = svg('svg', { class: 'density', viewBox: `0 0 ${columns} 20`, preserveAspectRatio: 'none', 'aria-hidden': true });
  const slider = h('input', { type: 'range', min: 0, max: 1000, value: 1000, class: 'slider', 'aria-label': t('time.slider'), oninput: () => move(true) });
  const now = h('output', { class: 'faint' });
  const period = h('select', { 'aria-label': t('time.span'), onchange: () => load() }, Object.keys(spans).map((s) => h('option', { value: s, selected: s === span }, t('time.last', { span: s }))));
  const more = h('button', { hidden: true, onclick: () => fetchPage(next), text: t('time.more') });
  replace(body, h('div', { class: 'bar' }, period, h('button', { onclick: () => load(), text: t('why.again') }), now), h('div', { class: 'time' }, picture, slider), notes, then, h('h2', { text: t('time.changes') }), list, more);

  const timeOf = () => new Date(since + ((until - since) * slider.value) / 1000);
  function move(byUser) {
    const time = timeOf();
    slider.setAttribute('aria-valuetext', when(time));
    slider.dataset.time = time.toISOString();
    now.textContent = when(time);
    // Only rows later than the slider are dimmed, so that the rest needs no new elements.
    for (const el of list.children) el.classList.toggle('later', Number(el.dataset.time) > time.getTime());
    const first = [...list.children].find((el) => !el.classList.contains('later'));
    if (byUser) first?.scrollIntoView({ block: 'nearest' });
    if (byUser || slider.value < 1000) at(time);
  }

  function load() {
    stopper.abort();
    stopper = new AbortController();
    until = Date.now();
    since = until - spans[period.value];
    items = [];
    slider.value = 1000;
    replace(list);
    fetchPage('');
  }

  async function fetchPage(from) {
    const signal = stopper.signal;
    more.disabled = true;
    try {
      const page = await ask('timeline', { ...query, since: new Date(since).toISOString(), until: new Date(until).toISOString(), limit: pageSize, continue: from }, signal);
      items.push(...(page.items ?? []));
      items.sort((a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : b.revision - a.revision));
      next = page.continue ?? '';
      const reaches = page.reaches && Date.parse(page.reaches) > since && t('time.reaches', { when: when(page.reaches) });
      const gaps = (page.gaps ?? []).map((g) => t('time.gap', { gap: typeof g === 'string' ? g : `${when(g.from ?? g.since)} – ${when(g.to ?? g.until)}` }));
      replace(notes, [reaches, ...gaps, page.hidden && t('hidden', { count: page.hidden })].filter(Boolean).map((text) => h('p', { class: 'faint', text })));
      replace(list, items.map((i) => row(i, !query.name)));
      if (!items.length) replace(notes, [...notes.childNodes], h('p', { class: 'faint', text: t('time.nothing') }));
      paint();
      move(false);
    } catch (err) {
      if (!signal.aborted) replace(notes, problem(err));
    }
    more.hidden = !next;
    more.disabled = false;
  }

  // paint draws how many changes happened when.
  function paint() {
    const count = new Array(columns).fill(0);
    for (const i of items) count[Math.min(columns - 1, Math.max(0, Math.floor((columns * (Date.parse(i.time) - since)) / (until - since))))]++;
    const most = Math.max(1, ...count);
    replace(picture, count.map((n, x) => n > 0 && svg('rect', { x, width: 0.9, y: 20 - (20 * n) / most, height: (20 * n) / most })));
  }
  load();
  return () => stopper.abort();
}

// row is one change or event.
function row(i, named) {
  const by = [i.actor, i.manager && i.manager !== i.actor && `(${i.manager})`].filter(Boolean).join(' ');
  const text = (v) => (v === undefined || v === null ? '–' : typeof v === 'string' ? v : JSON.stringify(v));
  const changes = (i.changes ?? []).map((c) => h('li', {}, h('code', { text: c.path }), ': ', c.hidden ? t('time.secret') : c.from !== undefined && c.from !== null && h('del', { text: text(c.from) }), !c.hidden && c.from !== undefined && c.from !== null && ' → ', !c.hidden && h('ins', { text: text(c.to) })));
  if (i.more) changes.push(h('li', { text: t('time.fields', { count: `+ ${i.more}` }) }));
  if (i.unknown) changes.push(h('li', { class: 'faint', text: i.unknown }));
  const about = i.event?.regarding;
  const event = i.event && [about?.name && [linkTo(about), ' '], state(i.event.reason ?? '', i.event.type === 'Warning' ? 'busy' : 'good'), ` ${i.event.message ?? ''}`];
  const effect = i.event ? event : h('b', { text: i.effect ?? '' });
  return h('li', { 'data-time': Date.parse(i.time) }, h('span', { class: 'faint', title: i.time, text: when(i.time) }), ' ', named && !i.event && [linkOf(i, 'timeline'), ' '], effect, ' ',
    by && h('span', { class: 'faint', text: t('time.by', { by }) }), ' ', i.revision > 0 && !i.event && h('a', { href: `#/trace/${i.revision}`, text: t('time.trace') }),
    changes.length > 0 && (changes.length > 6 ? h('details', {}, h('summary', { text: t('time.fields', { count: changes.length }) }), h('ul', { class: 'plain' }, changes)) : h('ul', { class: 'plain' }, changes)));
}
