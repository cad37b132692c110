// Elements are built from text nodes only: no data is ever parsed as HTML.

// h builds an element. props: `class`, `on*` listeners, `text`, properties (`value`, `checked`, …),
// and attributes. Children are nodes, texts, or nested lists of them; null is left out.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith('aria-')) el.setAttribute(name, String(value));
    else if (value === false) continue;
    else if (name === 'class') el.className = value;
    else if (name === 'text') el.textContent = value;
    else if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (['value', 'checked', 'disabled', 'selected', 'tabIndex', 'spellcheck'].includes(name)) el[name] = value;
    else el.setAttribute(name, value === true ? '' : String(value));
  }
  el.append(...flat(children));
  return el;
}

// svg builds an element of a drawing; all props are attributes but `text`.
export function svg(tag, props, ...children) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === 'text') el.textContent = value;
    else el.setAttribute(name, value);
  }
  el.append(...flat(children));
  return el;
}

function flat(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c)));
}

// replace puts children in place of an element's present ones.
export function replace(el, ...children) {
  el.replaceChildren(...flat(children));
  return el;
}

// say tells a message to screen readers.
export function say(message) {
  document.getElementById('live').textContent = message;
}

// perFrame returns a function that calls fn once in the next frame, however often it is called.
export function perFrame(fn) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      fn();
    });
  };
}

// later returns a function that calls fn when it has not been called for ms milliseconds.
export function later(ms, fn) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn(...args), ms);
  };
}

// dialog shows a modal dialog and returns it. Esc and the browser's own focus trap work.
export function dialog(title, ...children) {
  const heading = h('h2', { id: 'dialog-title', text: title });
  const el = h('dialog', { 'aria-labelledby': 'dialog-title' }, heading, children);
  const before = document.activeElement;
  el.addEventListener('close', () => {
    el.remove();
    before?.focus?.();
  });
  document.body.append(el);
  el.showModal();
  return el;
}
