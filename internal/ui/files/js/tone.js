// The tone of a state: good, busy, bad, or none. Text always stands beside the colour.

import { h } from './dom.js';

const good = new Set(['Running', 'Ready', 'Active', 'Bound', 'Succeeded', 'Completed', 'Complete', 'Available', 'True', 'Normal', 'Established']);
const busy = new Set(['Pending', 'ContainerCreating', 'PodInitializing', 'Terminating', 'NotReady', 'Released', 'Suspended', 'Unknown', 'Warning']);
const bad = new Set(['Failed', 'Error', 'CrashLoopBackOff', 'ImagePullBackOff', 'ErrImagePull', 'OOMKilled', 'Evicted', 'Lost', 'NodeLost', 'CreateContainerConfigError', 'CreateContainerError', 'RunContainerError', 'InvalidImageName', 'ContainerStatusUnknown', 'StartError', 'False']);

export function toneOf(text) {
  const word = String(text).split(/[,\s(]/)[0];
  if (good.has(word)) return String(text).includes('SchedulingDisabled') ? 'busy' : 'good';
  if (bad.has(word) || /BackOff|Error|Failed/.test(word)) return 'bad';
  return busy.has(word) || word.startsWith('Init:') ? 'busy' : '';
}

// state returns an element for a state's text.
export const state = (text, tone = toneOf(text)) => h('span', { class: `state ${tone}`, title: text }, text);

// short tells whether "1/2" is short of its goal.
export function short(ready) {
  const [have, want] = String(ready).split('/').map(Number);
  return have < want;
}
