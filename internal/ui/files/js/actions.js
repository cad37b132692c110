// What can be done with an object beside its YAML: scale, restart, delete. Each is what kubectl
// does, and is offered only with the right to do it.

import { h, dialog, say } from './dom.js';
import { t } from './i18n.js';
import * as api from './api.js';
import { path, listLink } from './kinds.js';
import { explain } from './view-list.js';

const scales = new Set(['apps/deployments', 'apps/statefulsets', 'apps/replicasets', '/replicationcontrollers']);
const restarts = new Set(['apps/deployments', 'apps/statefulsets', 'apps/daemonsets']);
const merge = 'application/merge-patch+json';
const manager = 'fieldManager=knarr-ui';

// actions returns the buttons for an object; present() returns the object, or undefined.
export function actions(kind, ns, name, present) {
  const id = `${kind.group}/${kind.resource}`;
  const what = `${kind.kind} ${ns ? ns + '/' : ''}${name}`;
  const button = (key, verb, subresource, run, look = '') => {
    const el = h('button', { class: look, hidden: true, 'data-action': key, onclick: () => run(), text: t(key) });
    api.allowed(verb, kind, ns, name, subresource).then((may) => (el.hidden = !may));
    return el;
  };
  return [
    scales.has(id) && button('scale', 'patch', 'scale', () => scale(kind, ns, name, what, present())),
    restarts.has(id) && button('restart', 'patch', undefined, () => restart(kind, ns, name, what)),
    button('delete', 'delete', undefined, () => remove(kind, ns, name, what, present()), 'danger'),
  ].filter(Boolean);
}

// confirm shows a dialog whose form calls act; it closes when that succeeds.
function confirm(title, content, go, look, kind, ns, act) {
  const problem = h('p', { class: 'problem', role: 'alert' });
  const submit = async (e) => {
    e.preventDefault();
    const sent = e.target.querySelector(`button.${look}`);
    sent.disabled = true;
    try {
      await act();
      box.close();
    } catch (err) {
      problem.textContent = explain(err, kind, ns);
      sent.disabled = false;
    }
  };
  const box = dialog(title, problem, h('form', { onsubmit: submit }, content, h('div', { class: 'bar' }, h('button', { type: 'button', onclick: () => box.close(), text: t('cancel') }), h('button', { class: look, text: go }))));
  return box;
}

function scale(kind, ns, name, what, present) {
  const field = h('input', { id: 'replicas', type: 'number', min: 0, max: 2147483647, step: 1, required: true, value: present?.spec?.replicas ?? 1 });
  confirm(t('scale.title', { what }), h('label', { class: 'pick', for: 'replicas' }, t('scale.replicas'), field), t('scale'), 'main', kind, ns, async () => {
    // The resourceVersion is left out: another writer of the status must not make the change fail.
    await api.json(`${path(kind, ns, name, 'scale')}?${manager}`, { method: 'PATCH', type: merge, body: { spec: { replicas: Number(field.value) } } });
    say(t('done'));
  });
  field.focus();
  field.select();
}

function restart(kind, ns, name, what) {
  confirm(t('restart.title', { what }), h('p', { text: t('restart.about') }), t('restart'), 'main', kind, ns, async () => {
    const annotations = { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString() };
    await api.json(`${path(kind, ns, name)}?${manager}`, { method: 'PATCH', type: 'application/strategic-merge-patch+json', body: { spec: { template: { metadata: { annotations } } } } });
    say(t('done'));
  });
}

function remove(kind, ns, name, what, present) {
  confirm(t('delete.title', { what }), h('p', { text: t('delete.about') }), t('delete'), 'danger', kind, ns, async () => {
    const preconditions = present ? { uid: present.metadata.uid } : undefined;
    await api.json(path(kind, ns, name), { method: 'DELETE', body: { apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: 'Background', preconditions } });
    location.hash = listLink(kind);
  });
}
