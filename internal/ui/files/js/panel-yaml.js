// An object as YAML. The server itself reads and writes the YAML, validates it while one types by a
// dry run, and says what a change would make of the object.

import { h, replace, later, say } from './dom.js';
import { t } from './i18n.js';
import { text, allowed } from './api.js';
import { path } from './kinds.js';
import { diff, hunks } from './diff.js';
import { explain } from './view-list.js';

const media = 'application/yaml';

export function yaml(body, { kind, ns, name }) {
  const area = h('textarea', { class: 'code', 'aria-label': t('tab.yaml'), spellcheck: false, wrap: 'off', readonly: true });
  const verdict = h('p', { role: 'status', class: 'verdict' });
  const change = h('div', { class: 'diff', role: 'region', 'aria-label': t('yaml.difference') });
  const apply = h('button', { class: 'main', disabled: true, onclick: save, text: t('yaml.apply') });
  const reload = h('button', { onclick: read, text: t('yaml.reload') });
  replace(body, h('div', { class: 'bar' }, reload, apply), verdict, h('div', { class: 'editor' }, area, change));
  let original = '';
  let may; // whether the user may change it, once it is known
  let turn = 0; // the newest check; answers of older ones are dropped

  const put = (query) => text(`${path(kind, ns, name)}?fieldValidation=Strict&fieldManager=knarr-ui${query}`, { method: 'PUT', type: media, accept: media, body: area.value });
  const tell = (message, tone) => {
    verdict.className = `verdict ${tone}`;
    verdict.textContent = message;
  };

  // rest is what is told when there is nothing to check.
  const rest = () => tell(may === false ? t('yaml.readonly') : '', '');

  async function read() {
    const own = ++turn;
    try {
      const got = withoutManagers(await text(path(kind, ns, name), { accept: media }));
      if (own !== turn) return;
      original = area.value = got;
      replace(change);
      rest();
      apply.disabled = true;
    } catch (err) {
      tell(explain(err, kind, ns), 'bad');
    }
  }

  const check = later(350, async () => {
    const own = ++turn;
    if (area.value === original) {
      replace(change);
      return rest();
    }
    try {
      const result = withoutManagers(await put('&dryRun=All'));
      if (own !== turn) return;
      tell(t('yaml.valid'), 'good');
      apply.disabled = false;
      draw(result);
    } catch (err) {
      if (own !== turn) return;
      tell(err.status === 409 ? t('yaml.conflict') : explain(err, kind, ns), 'bad');
      replace(change);
    }
  });

  function draw(result) {
    const changed = hunks(diff(original, result));
    replace(change, h('h2', { text: t('yaml.difference') }), changed.length === 0 && h('p', { class: 'faint', text: t('yaml.same') }), lines(changed));
  }

  async function save() {
    apply.disabled = true;
    const own = ++turn;
    try {
      const result = withoutManagers(await put(''));
      if (own !== turn) return;
      original = area.value = result;
      replace(change);
      tell(t('yaml.saved'), 'good');
      say(t('yaml.saved'));
    } catch (err) {
      tell(err.status === 409 ? t('yaml.conflict') : explain(err, kind, ns), 'bad');
    }
  }

  area.addEventListener('input', () => {
    apply.disabled = true;
    turn++; // what is being checked is no longer what is typed
    check();
  });
  area.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') area.blur();
  });
  apply.hidden = true;
  allowed('update', kind, ns, name).then((answer) => {
    may = answer;
    apply.hidden = !may;
    area.readOnly = !may;
    if (!may) rest();
  });
  read();
  return () => turn++;
}

const marks = { '+': 'ins', '-': 'del', ' ': 'span' };

// lines returns the elements for the parts of a difference.
export const lines = (changed) => changed.map((line) => (line ? h(marks[line[0]], { class: 'line', text: `${line[0]} ${line[1]}` }) : h('span', { class: 'line faint', text: '⋯' })));

// withoutManagers removes metadata.managedFields, which the server keeps when an update leaves it
// out.
export function withoutManagers(text) {
  const out = [];
  let top = '';
  let inside = false;
  for (const line of text.split('\n')) {
    if (/^\S/.test(line)) top = line;
    if (inside && /^ {2}(- | )/.test(line)) continue;
    inside = top === 'metadata:' && line === '  managedFields:';
    if (!inside) out.push(line);
  }
  return out.join('\n');
}
