// The map: components and the relations between them, drawn; zoomed and moved by mouse and keys.

import { h, svg, replace, say } from './dom.js';
import { t } from './i18n.js';
import { asking, linkTo } from './insight.js';
import { table } from './parts.js';
import { layout, box } from './layout.js';

const nameOf = (id) => (id.namespace ? `${id.namespace}/${id.name}` : id.name);

// marks are how relations with differences are drawn, the worst first: the server's name of the
// difference, its class, and the key of its words.
const marks = [
  ['denied', 'denied', 'map.denied'],
  ['seen, not declared', 'undeclared', 'map.undeclared'],
  ['not declared', 'undeclared', 'map.notDeclared'],
  ['declared, but the component is missing', 'undeclared', 'map.missing'],
  ['declared, never seen', 'unseen', 'map.unseen'],
];

// marksOf returns the marks of a relation, the worst first.
const marksOf = (r) => marks.filter(([name]) => r.differences?.includes(name));

// mark is the words beside a line, one line of text for each: a column's gap is narrow.
const mark = (all, look, x, y) => svg('text', { class: `mark ${look}`, 'text-anchor': 'middle' }, all.map(([, , key], i) => svg('tspan', { x, y: y + 11 * i, text: t(`${key}.short`) })));

// wordsOf says what is different about a relation; '' if nothing is.
const wordsOf = (r) => marksOf(r).map(([, , key]) => t(key)).join(', ');

export function map(root, ns) {
  const body = h('div', { class: 'panel' });
  let stop = () => {};
  const again = () => {
    stop();
    stop = asking(body, 'map', { namespace: ns }, draw);
  };
  replace(root, h('div', { class: 'bar' }, h('h1', { text: ns ? t('map.namespace', { ns }) : t('map.cluster') }), h('button', { onclick: again, text: t('why.again') })), body);
  again();
  return () => stop();
}

function draw(g) {
  if (!g.components?.length) return [h('p', { class: 'faint', text: t('map.empty') }), unread(g)];
  const drawing = new Drawing(g);
  const buttons = [['+', 'map.in', 1 / 1.3], ['−', 'map.out', 1.3], ['⤢', 'map.all', 0]].map(([sign, key, by]) => h('button', { title: t(key), 'aria-label': t(key), text: sign, onclick: () => (by ? drawing.zoom(by) : drawing.fit()) }));
  return [h('div', { class: 'bar' }, buttons, h('span', { class: 'faint', text: t('map.about') })), legend(g), drawing.el, unread(g), h('details', { class: 'alternative' }, h('summary', { text: t('map.text') }), texts(g))];
}

const unread = (g) => g.unread?.length > 0 && h('section', {}, h('h2', { text: t('why.unread') }), h('ul', {}, g.unread.map((text) => h('li', { text }))));

// legend explains the lines that the drawing has, if there is any difference.
function legend(g) {
  const relations = g.relations ?? [];
  const used = marks.filter(([name]) => relations.some((r) => r.differences?.includes(name)));
  if (!used.length) return null;
  const sample = (look) => svg('svg', { width: 40, height: 10, 'aria-hidden': 'true' }, svg('path', { class: `relation ${look}`, d: 'M0 5H40' }));
  return h('ul', { class: 'legend', 'aria-label': t('map.legend') }, [['', '', 'map.plain'], ...used].map(([, look, key]) => h('li', {}, sample(look), t(key))));
}

// target is the object that a click on a component opens.
const target = (c) => c.workloads?.[0] ?? (c.services?.[0] && { kind: 'Service', namespace: c.id.namespace, name: c.services[0].name });

function link(c) {
  const to = target(c);
  return to ? linkTo({ kind: to.kind, namespace: to.namespace ?? c.id.namespace, name: to.name }, '', nameOf(c.id)) : h('span', { text: nameOf(c.id) });
}

function texts(g) {
  const needs = (c) => (g.relations ?? []).filter((r) => nameOf(r.from) === nameOf(c.id));
  return table(t('map.components'), [t('map.component'), t('map.system'), t('ready'), t('map.services'), t('map.needs')], g.components.map((c) => [
    link(c), c.system ?? '', c.replicas ? `${c.ready} / ${c.replicas}` : '', (c.services ?? []).map((s) => `${s.name} ${(s.ports ?? []).join(' ')}`).join(', '),
    h('ul', { class: 'plain' }, needs(c).map((r) => h('li', {}, `${nameOf(r.to)}${r.through ? ` ${t('map.through', { through: r.through })}` : ''}`, wordsOf(r) && h('strong', { text: ` (${wordsOf(r)})` }), h('span', { class: 'faint', text: ` ${(r.evidence ?? []).join('; ')}` })))),
  ]));
}

// Drawing is the picture. Its view is a rectangle of the drawing in its own units.
class Drawing {
  constructor(g) {
    const { places, width, height } = layout(g);
    this.size = { width, height };
    const marker = svg('defs', {}, svg('marker', { id: 'arrow', markerWidth: 8, markerHeight: 8, refX: 7, refY: 4, orient: 'auto' }, svg('path', { class: 'arrow', d: 'M0 0L8 4L0 8z' })));
    const relations = g.relations ?? [];
    const lines = relations.map((r) => this.line(places.get(nameOf(r.from)), places.get(nameOf(r.to)), r));
    const different = (c) => relations.filter((r) => nameOf(r.from) === nameOf(c.id) && wordsOf(r)).map((r) => `${nameOf(r.to)}: ${wordsOf(r)}`);
    this.boxes = g.components.map((c) => this.box(places.get(nameOf(c.id)), c, different(c)));
    this.el = svg('svg', { class: 'map', role: 'group', tabindex: 0, 'aria-label': t('map.label', { components: g.components.length, relations: relations.length }), 'aria-roledescription': t('map') }, marker, lines, this.boxes);
    this.el.addEventListener('wheel', (e) => {
      e.preventDefault();
      const at = this.at(e);
      this.zoom(e.deltaY > 0 ? 1.15 : 1 / 1.15, at.x, at.y);
    }, { passive: false });
    this.el.addEventListener('pointerdown', (e) => this.drag(e));
    this.el.addEventListener('keydown', (e) => this.key(e));
    this.fit();
  }

  fit() {
    this.view = { x: 0, y: 0, w: this.size.width, h: this.size.height };
    this.show();
  }

  show() {
    const v = this.view;
    this.el.setAttribute('viewBox', `${v.x} ${v.y} ${v.w} ${v.h}`);
  }

  // at returns the point of the drawing below a mouse event.
  at(e) {
    const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(this.el.getScreenCTM().inverse());
    return { x: p.x, y: p.y };
  }

  // zoom shows by times as much, around a point that stays.
  zoom(by, x = this.view.x + this.view.w / 2, y = this.view.y + this.view.h / 2) {
    const v = this.view;
    const factor = Math.max(120 / v.w, Math.min(by, (this.size.width * 3) / v.w));
    this.view = { x: x - (x - v.x) * factor, y: y - (y - v.y) * factor, w: v.w * factor, h: v.h * factor };
    this.show();
  }

  move(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.show();
  }

  drag(e) {
    if (e.button !== 0) return;
    let last = this.at(e);
    let far = 0;
    const move = (m) => {
      const now = this.at(m);
      far += Math.abs(m.movementX) + Math.abs(m.movementY);
      this.move(last.x - now.x, last.y - now.y);
      last = this.at(m);
    };
    const stop = () => {
      this.el.removeEventListener('pointermove', move);
      // A drag that ends on a component must not open it.
      if (far > 6) this.el.addEventListener('click', (c) => c.preventDefault(), { capture: true, once: true });
    };
    this.el.addEventListener('pointermove', move);
    window.addEventListener('pointerup', stop, { once: true });
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const step = this.view.w / 12;
    const acts = {
      '+': () => this.zoom(1 / 1.3), '=': () => this.zoom(1 / 1.3), '-': () => this.zoom(1.3), 0: () => this.fit(),
      ArrowLeft: () => this.move(-step, 0), ArrowRight: () => this.move(step, 0), ArrowUp: () => this.move(0, -step), ArrowDown: () => this.move(0, step),
    };
    if (!acts[e.key]) return;
    acts[e.key]();
    e.preventDefault();
  }

  line(from, to, r) {
    const x1 = from.x + box.width;
    const y1 = from.y + box.height / 2;
    const y2 = to.y + box.height / 2;
    const back = to.x <= from.x; // a circle
    const x2 = back ? to.x + box.width : to.x;
    const bend = back ? 40 : 50;
    const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${back ? x2 + bend : x2 - bend} ${y2} ${x2} ${y2}`;
    const look = marksOf(r)[0]?.[1] ?? '';
    const words = wordsOf(r);
    const title = t('map.relation', { from: nameOf(r.from), to: nameOf(r.to), evidence: (r.evidence ?? []).join('; ') });
    const path = svg('path', { class: `relation ${look}`, d, 'marker-end': 'url(#arrow)' }, svg('title', { text: words ? `${title} (${words})` : title }));
    return words ? [path, mark(marksOf(r), look, (x1 + x2) / 2, (y1 + y2) / 2 - 5)] : path;
  }

  box(p, c, different) {
    const short = c.replicas > 0 && c.ready < c.replicas;
    const ready = c.replicas ? t('map.ready', { ready: c.ready, replicas: c.replicas }) : '';
    const a = svg(target(c) ? 'a' : 'g', { class: `component ${c.data?.length ? 'data' : ''} ${short ? 'short' : ''} ${c.id.namespace ? '' : 'outside'}`, 'aria-label': [nameOf(c.id), ready, ...different].filter(Boolean).join(', ') },
      svg('title', { text: [nameOf(c.id), c.system, ...(c.workloads ?? []).map((w) => `${w.kind} ${w.name}`), ready].filter(Boolean).join('\n') }),
      svg('rect', { x: p.x, y: p.y, width: box.width, height: box.height, rx: 6 }),
      svg('text', { x: p.x + 10, y: p.y + 19, text: shorten(c.id.name) }),
      svg('text', { class: 'second', x: p.x + 10, y: p.y + 35, text: shorten([c.id.namespace, ready].filter(Boolean).join(' · ')) }));
    const pointed = link(c);
    if (pointed.tagName === 'A') {
      const point = () => pointed.href && a.setAttribute('href', pointed.getAttribute('href'));
      point();
      new MutationObserver(point).observe(pointed, { attributes: true });
    }
    a.addEventListener('focus', () => {
      const v = this.view;
      if (p.x < v.x || p.y < v.y || p.x + box.width > v.x + v.w || p.y + box.height > v.y + v.h) {
        Object.assign(v, { x: p.x + box.width / 2 - v.w / 2, y: p.y + box.height / 2 - v.h / 2 });
        this.show();
      }
      say(a.getAttribute('aria-label'));
    });
    return a;
  }
}

const shorten = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);
