// The frame of the page: log-in, header, navigation, keys, and the view of the place in the address.

import { h, replace, say, dialog } from './dom.js';
import { t, load, language, languages } from './i18n.js';
import * as api from './api.js';
import { sections, find, listLink, namespaces } from './kinds.js';
import { Live } from './live.js';
import { login } from './view-login.js';
import { overview } from './view-overview.js';
import { list } from './view-list.js';
import { kinds } from './view-kinds.js';
import { object } from './view-object.js';
import { create } from './view-create.js';
import { map } from './view-map.js';
import { whyView } from './panel-why.js';
import { traceView } from './panel-trace.js';
import { timelineView } from './panel-timeline.js';

// views are the places that are neither lists nor objects. Those with true stand in the navigation.
const views = {
  overview: [overview, false],
  why: [whyView, true],
  map: [map, true],
  timeline: [timelineView, true],
  kinds: [kinds, true],
  create: [create, true],
};

const main = document.getElementById('main');
let user = null;
let leave = null; // ends the present view
let namespace = sessionStorage.getItem('knarr.namespace') ?? '';
let known = []; // names of namespaces
let watching = null;

const byId = (id) => document.getElementById(id);

function theme(wanted) {
  if (wanted) localStorage.setItem('knarr.theme', wanted);
  const chosen = localStorage.getItem('knarr.theme') ?? 'auto';
  if (chosen === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  return chosen;
}

function picker(id, label, choices, value, onchange) {
  const options = Object.entries(choices).map(([v, name]) => h('option', { value: v, selected: v === value }, name));
  return h('label', { class: 'pick' }, h('span', { class: 'hidden', text: label }), h('select', { id, title: label, onchange: (e) => onchange(e.target.value) }, options));
}

function drawFrame() {
  byId('skip').textContent = t('skip');
  document.title = 'knarr';
  const themes = { auto: t('theme.auto'), light: t('theme.light'), dark: t('theme.dark') };
  replace(byId('top'),
    h('a', { class: 'brand', href: '#/overview' }, h('img', { src: 'icon.svg', alt: '', width: 22, height: 22 }), 'knarr'),
    user && h('label', { class: 'pick' }, h('span', { text: t('namespace') }),
      h('input', { id: 'namespace', list: 'namespaces', value: namespace, placeholder: t('namespace.all'), autocomplete: 'off', spellcheck: false, onchange: (e) => choose(e.target.value.trim()) })),
    user && h('datalist', { id: 'namespaces' }),
    h('span', { class: 'fill' }),
    picker('language', t('language'), languages, language(), async (name) => {
      await load(name);
      drawFrame();
      show();
    }),
    picker('theme', t('theme'), themes, theme(), theme),
    h('button', { onclick: help, title: '?' }, t('help')),
    user && h('span', { class: 'user', title: (user.groups ?? []).join('\n') }, user.username),
    user && h('button', { onclick: () => api.logOut().finally(() => gone(t('login.out'))) }, t('logout')));
  byId('nav').setAttribute('aria-label', t('nav'));
  replace(byId('nav'), user && [entry('#/overview', t('overview')), sections.map((s) => entry(listLink(s.kinds[0]), t(`section.${s.id}`), s)), Object.keys(views).filter((id) => views[id][1]).map((id) => entry(`#/${id}`, t(`section.${id}`)))]);
  drawNamespaces();
}

function entry(href, name, section) {
  return h('a', { href, 'data-section': section?.id ?? href.slice(2) }, name);
}

function drawNamespaces() {
  const el = byId('namespaces');
  if (el) replace(el, known.map((name) => h('option', { value: name })));
}

function choose(name) {
  namespace = name;
  sessionStorage.setItem('knarr.namespace', name);
  show();
}

// show replaces the view by that of the address.
async function show() {
  leave?.();
  leave = null;
  if (!user) {
    leave = login(main, enter);
    return;
  }
  const parts = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  const at = location.hash;
  let section = parts[0] || 'overview';
  replace(main);
  try {
    if (parts[0] === 'list' || parts[0] === 'object') {
      const kind = await find(parts[1] === 'core' ? '' : parts[1], parts[2]);
      if (location.hash !== at) return;
      if (!kind) throw new Error(t('unknown.kind', { kind: parts[2] }));
      section = sections.find((s) => s.kinds.includes(kind))?.id ?? 'kinds';
      leave = parts[0] === 'list' ? list(main, kind, namespace) : object(main, kind, parts[3] === '-' ? '' : parts[3], parts[4], parts[5]);
    } else if (parts[0] === 'trace') leave = traceView(main, parts[1] ?? '');
    else {
      if (!Object.hasOwn(views, section)) section = 'overview';
      leave = views[section][0](main, namespace);
    }
  } catch (err) {
    replace(main, h('p', { class: 'problem', role: 'alert' }, err.message));
  }
  for (const a of byId('nav').children) {
    if (a.dataset.section === section) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
}

// enter is called with the user of a successful log-in.
function enter(info) {
  user = info;
  api.forgetRights();
  drawFrame();
  if (!location.hash.startsWith('#/')) history.replaceState(null, '', '#/overview');
  watching = new Live(namespaces, '', {}, (live) => {
    known = [...live.rows.values()].map((r) => r.name).sort();
    drawNamespaces();
  });
  show();
}

// gone shows the log-in again.
function gone(message) {
  if (!user) return;
  user = null;
  watching?.stop();
  drawFrame();
  show();
  say(message);
  byId('login-message').textContent = message;
}

function help() {
  const keys = ['/', 'j k ↓ ↑', 'Enter', 'w', 'Esc', 'g', '← ↑ → ↓ + − 0', '?'];
  const names = ['search', 'move', 'open', 'why', 'back', 'nav', 'map', 'help'];
  const box = dialog(t('help'), h('dl', { class: 'pairs' }, keys.map((k, i) => [h('dt', {}, h('kbd', { text: k })), h('dd', { text: t(`key.${names[i]}`) })])),
    h('p', { text: t('help.rights') }), h('form', { method: 'dialog' }, h('button', { text: t('close') })));
  return box;
}

function key(e) {
  const typing = e.target.closest('input, textarea, select, [data-typing]') || document.querySelector('dialog[open]');
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === 'Escape' && e.target.id === 'filter') byId('filter').blur() ?? document.querySelector('.grid')?.focus();
  else if (typing) return;
  else if (e.key === '/') byId('filter')?.focus();
  else if (e.key === '?') help();
  else if (e.key === 'g') byId('nav').querySelector('a')?.focus();
  else if (e.key === 'Escape' && location.hash.startsWith('#/object/')) history.back();
  else if (/^(ArrowDown|ArrowUp|j|k)$/.test(e.key) && byId('nav').contains(e.target)) {
    const links = [...byId('nav').children];
    const step = e.key === 'j' || e.key === 'ArrowDown' ? 1 : -1;
    links[(links.indexOf(e.target) + step + links.length) % links.length].focus();
  } else return;
  e.preventDefault();
}

async function start() {
  theme();
  const code = location.hash.match(/^#code=([\w-]+)$/)?.[1];
  const asked = code ? null : api.whoami().catch(() => null); // asked while the texts come
  await load();
  drawFrame();
  let problem = '';
  if (code) {
    history.replaceState(null, '', '#/overview'); // the code must not stay in the history
    await api.exchange(code).catch((err) => (problem = err.status === 401 ? t('login.badlink') : err.message));
  }
  const failed = location.hash.match(/^#failed=(.*)$/)?.[1];
  if (failed) {
    history.replaceState(null, '', '#/overview');
    problem = t('login.failed', { message: decodeURIComponent(failed) });
  }
  const info = problem ? null : await (asked ?? api.whoami().catch(() => null));
  if (info && info.username !== 'system:anonymous') enter(info);
  else {
    show();
    byId('login-message').textContent = problem;
  }
}

window.addEventListener('hashchange', () => {
  const code = location.hash.match(/^#code=/);
  if (code) location.reload();
  else show();
});
window.addEventListener('knarr-lost', () => gone(t('login.ended')));
document.addEventListener('keydown', key);
start();
