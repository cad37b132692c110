// Objects from YAML: each document is checked by a dry run, compared with the object as it is, and
// created or applied only after that.

import { h, replace, later, say } from './dom.js';
import { t } from './i18n.js';
import * as api from './api.js';
import { path, findByKind, objectLink } from './kinds.js';
import { diff, hunks } from './diff.js';
import { withoutManagers, lines } from './panel-yaml.js';
import { explain } from './view-list.js';

const media = 'application/yaml';
const mostDocuments = 50;

export function create(root, ns) {
  const area = h('textarea', { class: 'code', 'aria-label': t('tab.yaml'), spellcheck: false, wrap: 'off', placeholder: 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: …' });
  const verdict = h('p', { role: 'status', class: 'verdict' });
  const changes = h('div', { class: 'diff', role: 'region', tabIndex: 0, 'aria-label': t('yaml.difference') });
  const go = h('button', { class: 'main', disabled: true, onclick: () => run(false), text: t('create.go') });
  replace(root, h('div', { class: 'bar' }, h('h1', { text: t('create') }), go), h('p', { class: 'faint', text: t('create.about', { ns: ns || 'default' }) }), verdict, h('div', { class: 'editor' }, area, changes));
  let turn = 0;
  const tell = (message, tone) => {
    verdict.className = `verdict ${tone}`;
    verdict.textContent = message;
  };

  // run sends all documents, as dry runs or for real.
  async function run(dry) {
    const own = ++turn;
    go.disabled = true;
    const shown = [];
    let number = 0;
    try {
      const documents = split(area.value);
      if (!documents.length) {
        replace(changes);
        return tell('', '');
      }
      if (documents.length > mostDocuments) throw new Error(t('create.many', { most: mostDocuments }));
      for (const text of documents) {
        number++;
        const result = await send(text, ns || 'default', dry);
        if (own !== turn) return;
        shown.push(h('section', {}, h('h2', {}, dry ? result.what : h('a', { href: result.link, text: result.what }), ` – ${t(result.exists ? 'create.changes' : 'create.new')}`), dry && (result.changed.length ? lines(result.changed) : h('p', { class: 'faint', text: t('yaml.same') }))));
      }
      tell(dry ? t('yaml.valid') : t('yaml.saved'), 'good');
      if (!dry) say(t('yaml.saved'));
      go.disabled = !dry;
    } catch (err) {
      if (own !== turn) return;
      const where = number > 0 ? `${t('create.document', { number })}: ` : '';
      tell(where + (err.status === 409 ? err.message : err.kind ? explain(err, err.kind, ns) : err.message), 'bad');
    }
    replace(changes, shown);
  }
  const check = later(400, () => run(true));
  area.addEventListener('input', () => {
    go.disabled = true;
    turn++;
    check();
  });
  area.addEventListener('keydown', (e) => e.key === 'Escape' && area.blur());
  area.focus();
  return () => turn++;
}

// split returns the documents of a YAML stream that are not empty.
export const split = (text) => text.split(/^---(?:[ \t].*)?$/m).filter((d) => d.split('\n').some((line) => line.trim() && !line.trim().startsWith('#')));

// head reads what names the object; the server reads all the rest.
export function head(text) {
  const unquote = (v) => v?.replace(/\s+#.*$/, '').trim().replace(/^(["'])(.*)\1$/, '$2');
  const top = (key) => unquote(new RegExp(`^${key}:[ \\t]*(.+)$`, 'm').exec(text)?.[1]);
  const metadata = /^metadata:[ \t]*\n((?:(?:[ \t]+.*|[ \t]*#.*)?(?:\n|$))*)/m.exec(text)?.[1] ?? '';
  const indent = /^([ \t]+)[^\s#]/m.exec(metadata)?.[1] ?? ' ';
  const inside = (key) => unquote(new RegExp(`^${indent}${key}:[ \\t]*(.+)$`, 'm').exec(metadata)?.[1]);
  return { apiVersion: top('apiVersion'), kind: top('kind'), name: inside('name'), generateName: inside('generateName'), namespace: inside('namespace') };
}

// send creates the object of a document, or applies it to the one that exists.
async function send(text, fallback, dry) {
  const { apiVersion, kind: kindName, name, generateName, namespace } = head(text);
  if (!apiVersion || !kindName || !(name || generateName)) throw new Error(t('create.incomplete'));
  const found = await findByKind(apiVersion, kindName);
  if (!found) throw new Error(t('unknown.kind', { kind: `${kindName} (${apiVersion})` }));
  const kind = { ...found, version: apiVersion.split('/').at(-1) };
  const ns = kind.namespaced ? namespace ?? fallback : '';
  const query = `fieldValidation=Strict&fieldManager=knarr-ui${dry ? '&dryRun=All' : ''}`;
  try {
    const before = name ? await api.text(path(kind, ns, name), { accept: media }).catch((err) => (err.status === 404 || err.status === 403 ? '' : Promise.reject(err))) : '';
    const after = before ? await api.text(`${path(kind, ns, name)}?${query}`, { method: 'PATCH', type: 'application/apply-patch+yaml', accept: media, body: text }) : await api.text(`${path(kind, ns)}?${query}`, { method: 'POST', type: media, accept: media, body: text });
    const made = name ?? head(after).name;
    return { what: `${kindName} ${ns ? ns + '/' : ''}${name ?? generateName}`, exists: !!before, link: objectLink(kind, ns, made), changed: hunks(diff(withoutManagers(before), withoutManagers(after))) };
  } catch (err) {
    err.kind = kind;
    throw err;
  }
}
