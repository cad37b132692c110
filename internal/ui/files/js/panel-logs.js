// A container's log, followed.

import { h, replace, perFrame } from './dom.js';
import { t } from './i18n.js';
import { request, lines } from './api.js';
import { path } from './kinds.js';
import { names } from './panel-pod.js';
import { explain } from './view-list.js';

const most = 5000; // lines that are kept

export function logs(body, { kind, ns, name, onObject }) {
  const container = h('select', { 'aria-label': t('container'), onchange: () => start() });
  const box = (id, checked) => h('input', { type: 'checkbox', id, checked, onchange: () => start() });
  const previous = box('log-previous', false);
  const times = box('log-times', false);
  const follow = box('log-follow', true);
  const label = (input, key) => h('label', { class: 'check' }, input, t(key));
  const problem = h('p', { class: 'problem', role: 'alert' });
  const out = h('pre', { class: 'log', tabIndex: 0, role: 'log', 'aria-live': 'off', 'aria-label': t('tab.logs') });
  replace(body, h('div', { class: 'bar' }, container, label(follow, 'log.follow'), label(previous, 'log.previous'), label(times, 'log.times')), problem, out);

  let waiting = [];
  let stopper = new AbortController();
  const flush = perFrame(() => {
    const atEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
    const fresh = document.createDocumentFragment();
    for (const line of waiting.slice(-most)) fresh.append(line + '\n');
    waiting = [];
    out.append(fresh);
    while (out.childNodes.length > most) out.firstChild.remove();
    if (atEnd) out.scrollTop = out.scrollHeight;
  });
  const start = async () => {
    stopper.abort();
    stopper = new AbortController();
    const own = stopper.signal;
    waiting = [];
    replace(out);
    problem.textContent = '';
    const q = new URLSearchParams({ container: container.value, tailLines: '1000', follow: String(follow.checked && !previous.checked), previous: String(previous.checked), timestamps: String(times.checked) });
    try {
      for await (const line of lines(await request(`${path(kind, ns, name, 'log')}?${q}`, { accept: '*/*', signal: own }))) {
        if (own.aborted) return;
        waiting.push(line);
        flush();
      }
    } catch (err) {
      if (!own.aborted) problem.textContent = explain(err, { resource: 'pods/log' }, ns);
    }
  };
  let known = '';
  const off = onObject((o) => {
    const all = names(o);
    if (known === all.join()) return;
    known = all.join();
    const chosen = container.value;
    replace(container, all.map((c) => h('option', { value: c, selected: c === chosen }, c)));
    start();
  });
  return () => {
    off();
    stopper.abort();
  };
}
