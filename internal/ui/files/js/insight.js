// The paths by which the cluster explains itself, and what their answers share.

import { h, replace } from './dom.js';
import { t } from './i18n.js';
import * as api from './api.js';
import { all, sections, objectLink, find } from './kinds.js';

// ask returns the answer of /insight/v1/QUESTION. Empty values of the query are left out.
export function ask(question, query = {}, signal) {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== '' && v !== undefined && v !== null));
  return api.json(`/insight/v1/${question}?${q}`, { signal });
}

// trouble says why there is no answer, and what helps.
export function trouble(err) {
  const texts = { 403: t('insight.forbidden', { message: err.message }), 410: err.message, 404: t('insight.unknown', { message: err.message }), 429: t('insight.busy'), 503: err.message };
  return texts[err.status] ?? (err.status ? err.message : t('offline', { message: err.message }));
}

// problem is the element that shows a failed question.
export const problem = (err) => h('p', { class: 'problem', role: 'alert', text: trouble(err) });

// linkTo returns a link to an object of a built-in kind, named as { kind, namespace, name }.
export function linkTo(ref, tab = '', text = `${ref.kind} ${ref.namespace ? ref.namespace + '/' : ''}${ref.name}`) {
  const match = (k) => k.kind === ref.kind;
  const a = h('a', { text });
  const point = (k) => k && (a.href = objectLink(k, k.namespaced ? ref.namespace : '', ref.name, tab));
  const known = sections.flatMap((s) => s.kinds).find(match);
  if (known) point(known);
  else all().then((found) => point(found.find(match)), () => {});
  return a;
}

// linkOf returns a link to an object named as { group, resource, namespace, name }.
export function linkOf(o, tab = '') {
  const a = h('a', { text: `${o.resource} ${o.namespace ? o.namespace + '/' : ''}${o.name}` });
  find(o.group ?? '', o.resource).then((k) => k && (a.href = objectLink(k, k.namespaced ? o.namespace : '', o.name, tab)), () => {});
  return a;
}

// identity is the query that names an object.
export const identity = ({ kind, ns, name }) => ({ group: kind.group, resource: kind.resource, namespace: kind.namespaced ? ns : '', name });

// asking shows that an answer is awaited, and replaces it by what draw makes of the answer, or by
// the reason of the failure. It returns the function that gives up.
export function asking(body, question, query, draw) {
  const stopper = new AbortController();
  body.setAttribute('aria-busy', 'true');
  if (!body.firstChild) replace(body, h('p', { class: 'faint', role: 'status', text: t('insight.asking') }));
  ask(question, query, stopper.signal).then((answer) => replace(body, draw(answer)), (err) => !stopper.signal.aborted && replace(body, problem(err)))
    .finally(() => body.removeAttribute('aria-busy'));
  return () => stopper.abort();
}

// duration returns milliseconds in a short form.
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  return ms < 7200000 ? `${Math.round(ms / 60000)} min` : `${Math.round(ms / 3600000)} h`;
}
