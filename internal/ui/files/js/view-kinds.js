// All kinds that the server serves, custom resources among them.

import { h, replace } from './dom.js';
import { t } from './i18n.js';
import { all, forget, listLink } from './kinds.js';

export function kinds(root) {
  const field = h('input', { id: 'filter', type: 'search', placeholder: t('filter'), 'aria-label': t('filter'), spellcheck: false });
  const body = h('div', { class: 'kinds' });
  replace(root, h('h1', { text: t('section.kinds') }), h('div', { class: 'bar' }, field), body);
  let ended = false;
  forget();
  all().then((found) => {
    if (ended) return;
    const draw = () => {
      const word = field.value.trim().toLowerCase();
      const shown = found.filter((k) => `${k.kind} ${k.resource} ${k.group}`.toLowerCase().includes(word));
      const groups = [...new Set(shown.map((k) => k.group))];
      replace(body, groups.map((group) => h('section', {}, h('h2', { text: group || 'core' }),
        h('ul', { class: 'columns' }, shown.filter((k) => k.group === group).map((k) => h('li', {}, h('a', { href: listLink(k), text: k.kind }), ' ', h('span', { class: 'faint', text: k.version })))))));
    };
    field.addEventListener('input', draw);
    draw();
  }, (err) => replace(body, h('p', { class: 'problem', role: 'alert', text: err.message })));
  field.focus();
  return () => (ended = true);
}
