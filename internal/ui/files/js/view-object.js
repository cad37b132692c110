// One object: a summary that stays current, and tabs beside it.

import { h, replace, perFrame } from './dom.js';
import { t, age, when } from './i18n.js';
import * as api from './api.js';
import { pods, nodes, events, findByKind, listLink, objectLink } from './kinds.js';
import { liveObject } from './live.js';
import { state } from './tone.js';
import { objects, explain } from './view-list.js';
import { pairs, table } from './parts.js';
import { podSummary } from './panel-pod.js';
import { nodeSummary } from './panel-node.js';
import { logs } from './panel-logs.js';
import { shell } from './panel-shell.js';
import { yaml } from './panel-yaml.js';
import { why } from './panel-why.js';
import { trace } from './panel-trace.js';
import { timeline } from './panel-timeline.js';
import { actions } from './actions.js';

// tabs of an object: `fits` tells for which kinds, `open(body, context)` draws it and returns the
// function that ends it. context: kind, ns, name, and onObject(fn), which calls fn with the object
// at each change. A further tab is one line here.
const tabs = [
  { id: 'summary', fits: () => true, open: summary },
  { id: 'why', fits: (kind) => kind !== events && builtIn(kind), open: why },
  { id: 'pods', fits: (kind) => kind === nodes || ['apps', 'batch'].includes(kind.group) || kind.resource === 'services', open: podsOf },
  { id: 'logs', fits: (kind) => kind === pods, open: logs, needs: ['get', 'log'] },
  { id: 'shell', fits: (kind) => kind === pods, open: shell, needs: ['create', 'exec'] },
  { id: 'events', fits: (kind) => kind !== events, open: eventsOf },
  { id: 'trace', fits: (kind) => kind !== events, open: trace },
  { id: 'timeline', fits: (kind) => kind !== events, open: timeline },
  { id: 'yaml', fits: () => true, open: yaml },
];

// builtIn tells whether the server's rules know the kind: groups of custom kinds have a domain.
const builtIn = (kind) => !kind.group.includes('.') || kind.group.endsWith('.k8s.io');

export function object(root, kind, ns, name, tab = 'summary') {
  let leaveTab = () => {};
  let present;
  const listeners = new Set();
  const status = h('span', { class: 'faint' });
  const trouble = h('p', { class: 'problem', role: 'alert', hidden: true });
  const body = h('div', { class: 'panel', id: 'panel', role: 'tabpanel', 'aria-labelledby': `tab-${tab}` });
  const strip = h('div', { class: 'tabs', role: 'tablist' });
  const buttons = actions(kind, ns, name, () => present);
  const context = {
    kind, ns, name,
    onObject: (fn) => {
      listeners.add(fn);
      if (present) fn(present);
      return () => listeners.delete(fn);
    },
  };
  const stop = liveObject(kind, ns, name, (o) => {
    trouble.hidden = o !== null;
    if (o === null) {
      trouble.textContent = t('gone');
      buttons.forEach((b) => (b.hidden = true));
      return;
    }
    present = o;
    status.textContent = o.metadata.deletionTimestamp ? t('deleting') : '';
    listeners.forEach((fn) => fn(o));
  }, (err) => {
    trouble.hidden = false;
    trouble.textContent = err.status === 404 ? t('gone') : explain(err, kind, ns);
  });
  const shown = tabs.filter((x) => x.fits(kind));
  replace(strip, shown.map((x) => {
    const a = h('a', { id: `tab-${x.id}`, role: 'tab', href: objectLink(kind, ns, name, x.id), 'aria-selected': x.id === tab, 'aria-controls': 'panel', tabIndex: x.id === tab ? 0 : -1, text: t(`tab.${x.id}`) });
    if (x.needs) api.allowed(x.needs[0], kind, ns, name, x.needs[1]).then((may) => (a.hidden = !may && x.id !== tab));
    return a;
  }));
  strip.addEventListener('keydown', (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    const links = [...strip.children].filter((a) => !a.hidden);
    if (step) links[(links.indexOf(e.target) + step + links.length) % links.length].focus();
  });
  replace(root,
    h('div', { class: 'bar' }, h('a', { href: listLink(kind), text: kind.kind }), h('h1', { class: 'name', text: name }), ns && h('span', { class: 'faint', text: ns }), status, h('span', { class: 'fill' }), buttons),
    strip, trouble, body);
  leaveTab = (shown.find((x) => x.id === tab) ?? shown[0]).open(body, context) ?? leaveTab;
  if (!document.activeElement || document.activeElement === document.body) root.focus({ preventScroll: true });
  return () => {
    stop();
    leaveTab();
  };
}

// summary draws what all kinds have, and what pods and nodes have beside it.
function summary(body, context) {
  const special = context.kind === pods ? podSummary(context) : context.kind === nodes ? nodeSummary(context) : null;
  const common = h('div');
  replace(body, special?.el, common);
  let last;
  const draw = perFrame(() => replace(common, conditions(last), plain(last), meta(last)));
  const off = context.onObject((o) => {
    last = o;
    draw();
    special?.draw(o);
  });
  return () => {
    off();
    special?.stop?.();
  };
}

function conditions(o) {
  const list = o.status?.conditions;
  if (!Array.isArray(list)) return null;
  // For some conditions, False is good.
  const tone = (c) => (c.status === 'Unknown' ? 'busy' : (c.status === 'True') === !/Pressure|Unavailable|Failure|Failed|Dangling|Disruption/.test(c.type) ? 'good' : 'busy');
  return table(t('conditions'), [t('type'), t('status'), t('reason'), t('message'), t('since')],
    list.map((c) => [c.type, state(c.status, tone(c)), c.reason ?? '', c.message ?? '', h('span', { title: when(c.lastTransitionTime) }, age(c.lastTransitionTime))]));
}

// plain shows the scalar fields of spec and status.
function plain(o) {
  const scalars = (part) => Object.fromEntries(Object.entries(part ?? {}).filter(([, v]) => ['string', 'number', 'boolean'].includes(typeof v)));
  return [pairs('spec', scalars(o.spec)), pairs('status', scalars(o.status)), o.type && pairs('', { type: o.type, reason: o.reason, message: o.message, count: o.count })];
}

function meta(o) {
  const m = o.metadata;
  const owners = (m.ownerReferences ?? []).map((r) => {
    const a = h('a', { text: `${r.kind}/${r.name}` });
    findByKind(r.apiVersion, r.kind).then((k) => k && (a.href = objectLink(k, k.namespaced ? m.namespace : '', r.name)), () => {});
    return h('div', {}, a);
  });
  return [
    pairs(t('metadata'), { [t('created')]: `${when(m.creationTimestamp)} (${age(m.creationTimestamp)})`, [t('deleting')]: m.deletionTimestamp && when(m.deletionTimestamp), [t('owners')]: owners.length ? h('div', {}, owners) : undefined, [t('finalizers')]: m.finalizers?.join(', '), uid: m.uid }),
    pairs(t('labels'), m.labels),
    pairs(t('annotations'), m.annotations),
  ];
}

// podsOf lists the pods that a workload or Service selects, or that run on a node.
function podsOf(body, { kind, ns, name, onObject }) {
  let inner;
  let asked = '';
  const off = onObject((o) => {
    const s = o.spec?.selector;
    const words = Object.entries((kind.resource === 'services' ? s : s?.matchLabels) ?? {}).map(([k, v]) => `${k}=${v}`);
    for (const e of s?.matchExpressions ?? []) words.push({ In: `${e.key} in (${e.values})`, NotIn: `${e.key} notin (${e.values})`, Exists: e.key, DoesNotExist: `!${e.key}` }[e.operator]);
    const options = kind === nodes ? { fieldSelector: `spec.nodeName=${name}` } : { labelSelector: words.join(',') };
    if (asked === JSON.stringify(options)) return;
    asked = JSON.stringify(options);
    inner?.stop();
    inner = undefined;
    if (kind !== nodes && !words.length) return replace(body, h('p', { class: 'faint', text: t('selects.nothing') }));
    inner = objects(pods, ns, options);
    replace(body, inner.parts);
  });
  return () => {
    off();
    inner?.stop();
  };
}

function eventsOf(body, { kind, ns, name }) {
  const inner = objects(events, ns, { fieldSelector: `involvedObject.kind=${kind.kind},involvedObject.name=${name}` });
  replace(body, inner.parts);
  return inner.stop;
}
