// A grid of rows of which only the visible ones are in the document, so that 10,000 rows cost as
// much as 50. It is one tab stop: arrows, j and k move, Enter opens.

import { h, replace } from './dom.js';

const height = 32; // of a row, as in style.css

export class Grid {
  // open(row) is called by Enter and by a click. cell(row, column) returns a text or a node.
  constructor({ label, open, cell }) {
    Object.assign(this, { open, cell, rows: [], columns: [], at: 0, drawn: new Map() });
    this.head = h('div', { class: 'grid-row grid-head', role: 'row', 'aria-rowindex': 1 });
    this.space = h('div', { class: 'grid-space', role: 'rowgroup' });
    this.el = h('div', { class: 'grid', role: 'grid', tabIndex: 0, 'aria-label': label, onscroll: () => this.draw(), onkeydown: (e) => this.key(e) },
      h('div', { role: 'rowgroup', class: 'grid-top', hidden: true }, this.head), this.space);
    this.el.setAttribute('aria-busy', true); // until the first answer
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.el);
  }

  destroy() {
    this.sized.disconnect();
  }

  // setColumns takes names and widths (as in CSS grid-template-columns).
  setColumns(columns) {
    if (JSON.stringify(columns) === JSON.stringify(this.columns)) return;
    this.columns = columns;
    this.el.style.setProperty('--columns', columns.map((c) => c.width).join(' '));
    this.el.setAttribute('aria-colcount', columns.length);
    this.head.parentElement.hidden = columns.length === 0;
    replace(this.head, columns.map((c) => h('div', { role: 'columnheader', text: c.name, title: c.about })));
    this.clear();
  }

  // setRows shows rows with a `key`; the selected row stays selected.
  setRows(rows) {
    const selected = this.rows[this.at]?.key;
    this.rows = rows;
    const again = selected === undefined || rows[this.at]?.key === selected ? this.at : rows.findIndex((r) => r.key === selected);
    this.at = Math.max(0, Math.min(again < 0 ? this.at : again, rows.length - 1));
    this.el.setAttribute('aria-rowcount', rows.length + 1);
    this.space.style.setProperty('height', `${rows.length * height}px`);
    this.draw();
  }

  clear() {
    this.drawn.clear();
    this.space.replaceChildren();
  }

  // draw brings the rows in view into the document and removes the others.
  draw() {
    const first = Math.max(0, Math.floor(this.el.scrollTop / height) - 8);
    const last = Math.min(this.rows.length, Math.ceil((this.el.scrollTop + this.el.clientHeight) / height) + 8);
    const kept = new Map();
    for (let i = first; i < last; i++) {
      const row = this.rows[i];
      let d = this.drawn.get(row.key);
      if (!d || d.row !== row) {
        const el = this.build(row);
        if (d) d.el.replaceWith(el);
        else this.space.append(el);
        d = { row, el };
      }
      this.place(d.el, i);
      kept.set(row.key, d);
    }
    for (const [key, d] of this.drawn) if (!kept.has(key)) d.el.remove();
    this.drawn = kept;
    const active = this.rows.length ? `row-${this.at}` : '';
    if (active && kept.has(this.rows[this.at].key)) this.el.setAttribute('aria-activedescendant', active);
    else this.el.removeAttribute('aria-activedescendant');
  }

  build(row) {
    const cells = this.columns.map((c) => {
      const content = this.cell(row, c);
      return h('div', { role: 'gridcell', title: typeof content === 'string' ? content : null }, content);
    });
    const el = h('div', { class: 'grid-row', role: 'row' }, cells);
    el.addEventListener('click', () => {
      this.select(this.rows.indexOf(row));
      if (!String(getSelection())) this.open(row);
    });
    return el;
  }

  place(el, i) {
    el.id = `row-${i}`;
    el.setAttribute('aria-rowindex', i + 2);
    el.setAttribute('aria-selected', i === this.at);
    el.style.setProperty('transform', `translateY(${i * height}px)`);
  }

  select(i) {
    if (!this.rows.length) return;
    this.at = Math.max(0, Math.min(i, this.rows.length - 1));
    const top = this.at * height;
    const view = this.el.clientHeight - height; // below the head
    if (top < this.el.scrollTop) this.el.scrollTop = top;
    else if (top + height > this.el.scrollTop + view) this.el.scrollTop = top + height - view;
    this.draw();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target !== this.el) return;
    const page = Math.max(1, Math.floor(this.el.clientHeight / height) - 2);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (e.key in moves) this.select(this.at + moves[e.key]);
    else if (e.key === 'Enter' && this.rows[this.at]) this.open(this.rows[this.at]);
    else return;
    e.preventDefault();
  }
}
