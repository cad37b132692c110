// A small terminal: lines, carriage return, backspace, tabs, and the escape sequences with which
// shells edit a line. Colours are left out; full-screen programs are not drawn.

const mostLines = 2000;

export class Terminal {
  constructor() {
    this.lines = [''];
    this.column = 0;
    this.pending = ''; // an unfinished escape sequence
  }

  get text() {
    return this.lines.join('\n');
  }

  write(data) {
    let text = this.pending + data;
    this.pending = '';
    while (text) {
      const at = text.search(/[\x00-\x1f\x7f]/);
      const plain = at < 0 ? text : text.slice(0, at);
      if (plain) this.put(plain);
      if (at < 0) break;
      text = text.slice(at);
      if (text[0] !== '\x1b') {
        this.control(text[0]);
        text = text.slice(1);
        continue;
      }
      // CSI, OSC, or a sequence of two or three characters.
      const m = /^\x1b(?:\[([?>=]?)([\d;]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[^[\]()])/.exec(text);
      if (!m) {
        if (text.length < 256) this.pending = text;
        break;
      }
      if (m[3] && !m[1]) this.sequence(m[3], m[2].split(';').map(Number));
      text = text.slice(m[0].length);
    }
    if (this.lines.length > mostLines) this.lines.splice(0, this.lines.length - mostLines);
  }

  put(text) {
    const line = this.lines.at(-1).padEnd(this.column);
    this.lines[this.lines.length - 1] = line.slice(0, this.column) + text + line.slice(this.column + text.length);
    this.column += text.length;
  }

  control(c) {
    if (c === '\n') {
      this.lines.push('');
      this.column = 0;
    } else if (c === '\r') this.column = 0;
    else if (c === '\b') this.column = Math.max(0, this.column - 1);
    else if (c === '\t') this.put(' '.repeat(8 - (this.column % 8)));
  }

  sequence(command, [first = 0]) {
    const line = this.lines.at(-1);
    const last = this.lines.length - 1;
    const n = Math.min(first || 1, 500);
    if (command === 'C') this.column += n;
    else if (command === 'D') this.column = Math.max(0, this.column - n);
    else if (command === 'G') this.column = n - 1;
    else if (command === 'K') this.lines[last] = first === 0 ? line.slice(0, this.column) : first === 1 ? ' '.repeat(this.column) + line.slice(this.column) : '';
    else if (command === 'P') this.lines[last] = line.slice(0, this.column) + line.slice(this.column + n);
    else if (command === '@') this.lines[last] = line.slice(0, this.column) + ' '.repeat(n) + line.slice(this.column);
    else if (command === 'J' && first >= 2) {
      this.lines = [''];
      this.column = 0;
    } else if (command === 'J') this.lines[last] = line.slice(0, this.column);
  }
}

const keys = { Enter: '\r', Backspace: '\x7f', Tab: '\t', Escape: '\x1b', ArrowUp: '\x1b[A', ArrowDown: '\x1b[B', ArrowRight: '\x1b[C', ArrowLeft: '\x1b[D', Home: '\x1b[H', End: '\x1b[F', Delete: '\x1b[3~' };

// bytesOf returns what a key sends, or '' for a key that the browser keeps.
export function bytesOf(e) {
  if (e.metaKey || e.altKey) return '';
  if (e.ctrlKey) return /^[a-z]$/.test(e.key) && !(e.key === 'c' && String(getSelection())) && e.key !== 'v' ? String.fromCharCode(e.key.charCodeAt(0) - 96) : '';
  if (e.key === 'Tab' && e.shiftKey) return ''; // the way out for the keyboard
  return keys[e.key] ?? (e.key.length === 1 ? e.key : '');
}
