// A node's capacity, what its pods request, and what is used, if the server has metrics.

import { h, replace } from './dom.js';
import { t } from './i18n.js';
import * as api from './api.js';
import { pairs, table } from './parts.js';
import { parse, cpu, bytes, ofPod } from './quantity.js';

export function nodeSummary({ name }) {
  const el = h('div');
  let requested, used, node;
  const draw = () => {
    if (!node) return;
    const info = node.status?.nodeInfo ?? {};
    replace(el, table(t('resources'), [t('name'), t('capacity'), t('allocatable'), t('requests'), t('use')], ['cpu', 'memory', 'pods'].map((r) => row(r))),
      pairs(t('node'), { [t('addresses')]: (node.status?.addresses ?? []).map((a) => `${a.type} ${a.address}`).join(', '), kubelet: info.kubeletVersion, [t('runtime')]: info.containerRuntimeVersion, OS: info.osImage, kernel: info.kernelVersion, [t('taints')]: (node.spec?.taints ?? []).map((x) => `${x.key}${x.value ? '=' + x.value : ''}:${x.effect}`).join(', ') }));
  };
  const row = (r) => {
    const show = r === 'cpu' ? cpu : r === 'memory' ? bytes : String;
    const all = parse(node.status?.allocatable?.[r]);
    const part = (n) => (n === undefined ? '–' : meter(r, show(n), all ? n / all : 0));
    return [r, show(parse(node.status?.capacity?.[r])), show(all), part(r === 'pods' ? requested?.length : requested?.reduce((n, p) => n + ofPod(p, r), 0)), part(used && used[r] !== undefined ? parse(used[r]) : undefined)];
  };
  const ask = async () => {
    const pods = api.json(`/api/v1/pods?fieldSelector=${encodeURIComponent(`spec.nodeName=${name},status.phase!=Succeeded,status.phase!=Failed`)}`);
    const usage = api.json(`/apis/metrics.k8s.io/v1beta1/nodes/${encodeURIComponent(name)}`);
    [requested, used] = await Promise.all([pods.then((l) => l.items, () => undefined), usage.then((m) => m.usage, () => undefined)]);
    draw();
  };
  ask();
  const timer = setInterval(ask, 20000);
  return {
    el,
    draw: (o) => {
      node = o;
      draw();
    },
    stop: () => clearInterval(timer),
  };
}

function meter(name, text, share) {
  const percent = Math.round(share * 100);
  return h('span', { class: 'meter' }, h('meter', { min: 0, max: 100, high: 90, value: Math.min(percent, 100), 'aria-label': `${name} ${percent}%` }), ` ${text} (${percent}%)`);
}
