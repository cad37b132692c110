// A command in a container, over the WebSocket protocol of kubectl exec.

import { h, replace, perFrame, later } from './dom.js';
import { t } from './i18n.js';
import { socket } from './api.js';
import { path } from './kinds.js';
import { names } from './panel-pod.js';
import { Terminal, bytesOf } from './terminal.js';

const protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
const channel = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 };

export function shell(body, { kind, ns, name, onObject }) {
  const container = h('select', { 'aria-label': t('container') });
  const command = h('input', { 'aria-label': t('shell.command'), value: 'sh', spellcheck: false });
  const status = h('span', { class: 'faint', role: 'status' });
  const screen = h('pre', { class: 'log terminal', tabIndex: 0, 'data-typing': true, role: 'textbox', 'aria-multiline': true, 'aria-label': t('tab.shell') });
  const probe = h('span', { class: 'code probe', 'aria-hidden': true, text: '0'.repeat(20) });
  let ws = null;
  const form = h('form', { class: 'bar', onsubmit: (e) => (e.preventDefault(), open()) }, container, command, h('button', { class: 'main', text: t('shell.open') }), h('button', { type: 'button', onclick: () => ws?.close(), text: t('shell.close') }), status);
  replace(body, form, h('p', { class: 'faint', text: t('shell.about') }), probe, screen);

  // resize tells the terminal's size in characters, if it has changed since.
  let told = '';
  const resize = () => {
    if (ws?.readyState !== WebSocket.OPEN || !screen.clientWidth) return;
    const one = probe.getBoundingClientRect();
    const space = 20; // the padding of the screen
    const size = JSON.stringify({ Width: Math.max(20, Math.floor((screen.clientWidth - space) / (one.width / 20))), Height: Math.max(5, Math.floor((screen.clientHeight - space) / one.height)) });
    if (size === told) return;
    told = size;
    ws.send(String.fromCharCode(channel.resize) + size);
  };
  const sized = new ResizeObserver(later(100, resize));
  sized.observe(screen);

  const send = (text) => {
    if (ws?.readyState !== WebSocket.OPEN) return;
    const data = new TextEncoder().encode(text);
    const frame = new Uint8Array(data.length + 1);
    frame[0] = channel.stdin;
    frame.set(data, 1);
    ws.send(frame);
  };
  screen.addEventListener('keydown', (e) => {
    const bytes = bytesOf(e);
    if (!bytes) return;
    send(bytes);
    e.preventDefault();
  });
  screen.addEventListener('paste', (e) => {
    send(e.clipboardData.getData('text').replace(/\n/g, '\r'));
    e.preventDefault();
  });

  function open() {
    ws?.close();
    const term = new Terminal();
    const decode = { 1: new TextDecoder(), 2: new TextDecoder() };
    const draw = perFrame(() => {
      screen.textContent = term.text;
      screen.scrollTop = screen.scrollHeight;
    });
    const q = new URLSearchParams({ container: container.value, stdin: 'true', stdout: 'true', tty: 'true' });
    for (const word of command.value.trim().split(/\s+/)) q.append('command', word);
    const own = socket(`${path(kind, ns, name, 'exec')}?${q}`, protocols);
    ws = own;
    own.binaryType = 'arraybuffer';
    let ended = '';
    status.textContent = t('shell.opening');
    own.onopen = () => {
      status.textContent = t('shell.connected');
      told = '';
      resize();
      screen.focus();
    };
    own.onmessage = ({ data }) => {
      const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : new Uint8Array(data);
      const rest = bytes.subarray(1);
      if (bytes[0] === channel.stdout || bytes[0] === channel.stderr) {
        term.write(decode[bytes[0]].decode(rest, { stream: true }));
        draw();
      } else if (bytes[0] === channel.error) {
        const result = JSON.parse(new TextDecoder().decode(rest));
        ended = result.status === 'Success' ? t('shell.done') : result.message;
      }
    };
    own.onclose = () => ws === own && (status.textContent = ended || t('shell.closed'));
  }

  let known = '';
  const off = onObject((o) => {
    const all = names(o);
    if (known === all.join()) return;
    known = all.join();
    replace(container, all.map((c) => h('option', { value: c }, c)));
  });
  return () => {
    off();
    sized.disconnect();
    ws?.close();
  };
}
