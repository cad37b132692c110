// Why an object, a namespace or the cluster is not well: root causes with evidence and remedy, and
// the chain of causes between. The server's rules answer in English.

import { h, replace, later } from './dom.js';
import { t } from './i18n.js';
import { asking, identity, linkTo } from './insight.js';
import { state } from './tone.js';
import { table } from './parts.js';

const mostNodes = 50;
const pause = 1500; // after a change of the object, before the question is asked again

// why is the tab of an object. It asks again when the object changes.
export function why(body, context) {
  const answer = h('div', { class: 'answer', role: 'region', 'aria-live': 'polite', 'aria-label': t('tab.why') });
  let stop = () => {};
  const again = () => {
    stop();
    stop = asking(answer, 'why', identity(context), draw);
  };
  replace(body, h('div', { class: 'bar' }, h('button', { onclick: again, text: t('why.again') })), answer);
  again();
  const changed = later(pause, () => body.isConnected && again());
  let version = '';
  const off = context.onObject((o) => {
    const status = JSON.stringify([o.metadata.generation, o.metadata.deletionTimestamp, o.status?.phase, o.status?.conditions?.map((c) => [c.type, c.status, c.reason])]);
    if (version && version !== status) changed();
    version = status;
  });
  return () => {
    off();
    stop();
  };
}

// whyView shows what is not well in a namespace, or in the cluster.
export function whyView(root, ns) {
  const answer = h('div', { class: 'answer', role: 'region', 'aria-live': 'polite', 'aria-label': t('tab.why') });
  let stop = () => {};
  const again = () => {
    stop();
    stop = asking(answer, 'why', { namespace: ns }, draw);
  };
  replace(root, h('div', { class: 'bar' }, h('h1', { text: ns ? t('why.namespace', { ns }) : t('why.cluster') }), h('button', { onclick: again, text: t('why.again') })), answer);
  again();
  return () => stop();
}

function draw(a) {
  const well = a.findings.length === 0;
  return [
    h('p', { class: 'headline' }, state(well ? (a.unread?.length ? t('why.unknown') : t('why.well', { count: a.looked })) : t('why.roots', { count: a.rootCauses.length }), well ? 'good' : 'bad')),
    a.rootCauses.map((r, i) => root(r, a.rootCauses.length > 1 ? `${i + 1}. ` : '', a.subject)),
    a.subject && a.findings.some((f) => !f.root) && h('section', {}, h('h2', { text: t('why.chain') }), h('ul', { class: 'chain' }, a.findings.filter((f) => !f.root).map((f) => link(f)))),
    a.unread?.length && h('section', {}, h('h2', { text: t('why.unread') }), h('ul', {}, a.unread.map((text) => h('li', { text })))),
  ];
}

function root(r, number, subject) {
  const others = r.affects.filter((x) => x.kind !== r.subject.kind || x.name !== r.subject.name || x.namespace !== r.subject.namespace);
  return h('article', { class: 'cause' },
    h('h2', {}, number, linkTo(r.subject), ': ', r.problem),
    r.remedy && h('p', { class: 'remedy' }, h('b', { text: `${t('why.remedy')} ` }), r.remedy),
    r.evidence?.length && h('ul', { class: 'evidence', 'aria-label': t('why.evidence') }, r.evidence.map((e) => h('li', {}, h('span', { class: 'pre', text: e.text }), e.object && [' ', linkTo(e.object)]))),
    !subject && others.length > 0 && h('p', { class: 'faint' }, `${t('why.affects')} `, others.slice(0, 20).map((x, i) => [i > 0 && ', ', linkTo(x)]), others.length > 20 && ` + ${others.length - 20}`),
    r.nodes?.length && table(t('why.nodes'), [t('node'), t('why.verdict'), t('reason'), t('why.change')], r.nodes.slice(0, mostNodes).map((n) => [
      linkTo({ kind: 'Node', name: n.node }, '', n.node), n.fits ? state(t('why.fits'), 'good') : n.never ? state(t('why.never'), 'bad') : state(t('why.notnow'), 'busy'),
      (n.refusals ?? []).map((x) => x.reason).join('; '), (n.refusals ?? []).map((x) => x.change).filter(Boolean).join('; ')])));
}

function link(f) {
  return h('li', {}, linkTo(f.subject), `: ${f.problem}`, f.because?.length && h('ul', { class: 'chain' }, f.because.slice(0, 10).map((b) => link(b)), f.because.length > 10 && h('li', { text: `+ ${f.because.length - 10}` })));
}
