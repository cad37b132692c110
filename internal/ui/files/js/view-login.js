// The log-in: how to get a link, or a bearer token to paste.

import { h, replace } from './dom.js';
import { t } from './i18n.js';
import * as api from './api.js';

// login calls enter with the user's name and groups.
export function login(root, enter) {
  const message = h('p', { id: 'login-message', class: 'problem', role: 'alert' });
  const field = h('input', { id: 'token', type: 'password', autocomplete: 'off', required: true, maxlength: 16384 });
  const submit = async (e) => {
    e.preventDefault();
    message.textContent = '';
    api.useToken(field.value);
    field.value = '';
    try {
      enter(await api.whoami());
    } catch (err) {
      api.useToken('');
      message.textContent = err.status === 401 ? t('login.badtoken') : err.message;
    }
  };
  const issuers = h('div', { class: 'issuers' });
  // A server without issuers, or of an older version, has none.
  fetch('login/issuers').then((r) => (r.ok ? r.json() : { issuers: [] })).then((list) => replace(issuers, list.issuers.map((issuer) => h('a', { class: 'action', href: `login/begin?${new URLSearchParams({ issuer })}`, text: t('login.issuer', { issuer: new URL(issuer).host }) }))), () => {});
  replace(root, h('section', { class: 'login' },
    h('h1', { text: t('login') }),
    message,
    issuers,
    h('p', { text: t('login.link') }),
    h('pre', { class: 'code', text: 'knarr ui' }),
    h('form', { onsubmit: submit }, h('label', { for: 'token', text: t('login.token') }), field, h('button', { class: 'main', text: t('login.enter') })),
    h('p', { class: 'faint', text: t('login.memory') })));
  return () => {};
}
