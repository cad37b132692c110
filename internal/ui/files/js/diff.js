// The difference of two texts by lines.

const mostCells = 4e6; // of the table of common parts; larger changes are shown as one block

// diff returns [mark, line] pairs; mark is ' ', '-' or '+'.
export function diff(before, after) {
  const a = before.split('\n');
  const b = after.split('\n');
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (lines) => lines.map((l) => [' ', l]);
  return [...same(a.slice(0, start)), ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)), ...same(a.slice(a.length - end))];
}

function middle(a, b) {
  const all = [];
  if (a.length * b.length > mostCells) return [...a.map((l) => ['-', l]), ...b.map((l) => ['+', l])];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  }
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      all.push([' ', a[i++]]);
      j++;
    } else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) all.push(['-', a[i++]]);
    else all.push(['+', b[j++]]);
  }
  return all;
}

// hunks leaves out unchanged lines that are further than three from a change; null marks a gap.
export function hunks(lines) {
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - 3), i + 4).some(([mark]) => mark !== ' '));
  const out = [];
  lines.forEach((line, i) => {
    if (near[i]) out.push(line);
    else if (out.length && out.at(-1) !== null) out.push(null);
  });
  if (out.at(-1) === null) out.pop();
  return out;
}
