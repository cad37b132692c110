// Kubernetes' quantities, such as 100m, 1Gi or 12345678n.

const factors = { n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

// parse returns a number, or 0 for what is no quantity.
export function parse(text) {
  const m = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([numkMGTPE]?i?)$/.exec(String(text ?? ''));
  return m && m[2] in factors ? Number(m[1]) * factors[m[2]] : 0;
}

// cpu and bytes return a short text.
export const cpu = (n) => (Number.isInteger(n) ? String(n) : n < 10 ? `${Math.round(n * 1000)}m` : n.toFixed(1));

export function bytes(n) {
  for (const unit of ['Ti', 'Gi', 'Mi', 'Ki']) if (n >= factors[unit]) return `${(n / factors[unit]).toFixed(n / factors[unit] < 10 ? 1 : 0)} ${unit}B`;
  return `${Math.round(n)} B`;
}

// ofPod sums the requests of a pod's containers; the largest init container counts if it is more.
export function ofPod(pod, resource) {
  const request = (c) => parse(c.resources?.requests?.[resource]);
  const restarts = (c) => c.restartPolicy === 'Always';
  const init = pod.spec.initContainers ?? [];
  const running = [...pod.spec.containers, ...init.filter(restarts)].reduce((n, c) => n + request(c), 0);
  const first = Math.max(0, ...init.filter((c) => !restarts(c)).map(request));
  return Math.max(running, first) + parse(pod.spec.overhead?.[resource]);
}
