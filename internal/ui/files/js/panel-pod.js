// A pod's containers: state, restarts, and how the last one ended.

import { h, replace } from './dom.js';
import { t, age } from './i18n.js';
import { nodes, objectLink } from './kinds.js';
import { state } from './tone.js';
import { pairs, table } from './parts.js';

export function podSummary() {
  const el = h('div');
  return { el, draw: (o) => replace(el, facts(o), containers(o)) };
}

function facts(o) {
  const s = o.status ?? {};
  return pairs(t('pod'), {
    [t('status')]: state(s.reason ?? s.phase ?? ''),
    [t('message')]: s.message,
    [t('node')]: o.spec.nodeName && h('a', { href: objectLink(nodes, '', o.spec.nodeName), text: o.spec.nodeName }),
    [t('addresses')]: (s.podIPs ?? []).map((x) => x.ip).join(', '),
    QoS: s.qosClass,
    [t('serviceaccount')]: o.spec.serviceAccountName,
  });
}

function containers(o) {
  const s = o.status ?? {};
  const statuses = new Map([...(s.initContainerStatuses ?? []), ...(s.containerStatuses ?? []), ...(s.ephemeralContainerStatuses ?? [])].map((c) => [c.name, c]));
  const all = [...(o.spec.initContainers ?? []).map((c) => [c, 'init']), ...o.spec.containers.map((c) => [c, '']), ...(o.spec.ephemeralContainers ?? []).map((c) => [c, 'ephemeral'])];
  return table(t('containers'), [t('name'), t('status'), t('restarts'), t('last.end'), t('image')], all.map(([c, role]) => {
    const st = statuses.get(c.name);
    const ended = st?.lastState?.terminated;
    return [role ? `${c.name} (${role})` : c.name, stateOf(st), String(st?.restartCount ?? 0), ended ? `${ended.reason ?? ''} ${t('exit', { code: ended.exitCode })}, ${age(ended.finishedAt)}` : '', c.image];
  }));
}

function stateOf(st) {
  const s = st?.state ?? {};
  if (s.running) return h('span', {}, state(st.ready ? t('running') : t('running.notready'), st.ready ? 'good' : 'busy'), ` ${age(s.running.startedAt)}`);
  if (s.terminated) return h('span', { title: s.terminated.message }, state(`${s.terminated.reason ?? ''} (${s.terminated.exitCode})`, s.terminated.exitCode ? 'bad' : 'good'));
  return h('span', {}, state(s.waiting?.reason ?? t('waiting'), /BackOff|Err/.test(s.waiting?.reason ?? '') ? 'bad' : 'busy'), s.waiting?.message ? ` ${s.waiting.message}` : '');
}

// names returns the names of all containers, the main ones first.
export const names = (o) => [...o.spec.containers, ...(o.spec.initContainers ?? []), ...(o.spec.ephemeralContainers ?? [])].map((c) => c.name);
