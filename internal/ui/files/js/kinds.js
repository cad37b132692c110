// Kinds of objects: those in the navigation, and all others by discovery.

import { json } from './api.js';

const kind = (group, version, resource, name, namespaced = true) => ({ group, version, resource, kind: name, namespaced });

export const pods = kind('', 'v1', 'pods', 'Pod');
export const nodes = kind('', 'v1', 'nodes', 'Node', false);
export const events = kind('', 'v1', 'events', 'Event');
export const namespaces = kind('', 'v1', 'namespaces', 'Namespace', false);
export const deployments = kind('apps', 'v1', 'deployments', 'Deployment');
export const statefulSets = kind('apps', 'v1', 'statefulsets', 'StatefulSet');
export const daemonSets = kind('apps', 'v1', 'daemonsets', 'DaemonSet');

// sections are the entries of the navigation, each with its kinds.
export const sections = [
  { id: 'workloads', kinds: [deployments, statefulSets, daemonSets, kind('batch', 'v1', 'jobs', 'Job'), kind('batch', 'v1', 'cronjobs', 'CronJob'), kind('apps', 'v1', 'replicasets', 'ReplicaSet')] },
  { id: 'pods', kinds: [pods] },
  { id: 'nodes', kinds: [nodes] },
  { id: 'network', kinds: [kind('', 'v1', 'services', 'Service'), kind('discovery.k8s.io', 'v1', 'endpointslices', 'EndpointSlice'), kind('networking.k8s.io', 'v1', 'ingresses', 'Ingress'), kind('networking.k8s.io', 'v1', 'networkpolicies', 'NetworkPolicy')] },
  { id: 'storage', kinds: [kind('', 'v1', 'persistentvolumeclaims', 'PersistentVolumeClaim'), kind('', 'v1', 'persistentvolumes', 'PersistentVolume', false), kind('storage.k8s.io', 'v1', 'storageclasses', 'StorageClass', false)] },
  { id: 'events', kinds: [events] },
];

let discovered;

// all returns every kind that the server serves, sorted by group and name.
export function all() {
  discovered ??= discover().catch((err) => {
    discovered = undefined;
    throw err;
  });
  return discovered;
}

// forget makes the next call of all ask again, for kinds defined since.
export function forget() {
  discovered = undefined;
}

async function discover() {
  const accept = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json';
  const found = [];
  for (const list of await Promise.all([json('/api', { accept }), json('/apis', { accept })])) {
    for (const group of list.items ?? []) {
      const seen = new Set();
      for (const version of group.versions ?? []) {
        for (const r of version.resources ?? []) {
          if (!r.verbs?.includes('list') || seen.has(r.resource)) continue;
          seen.add(r.resource); // the first version is the preferred one
          found.push({ group: group.metadata?.name ?? '', version: version.version, resource: r.resource, kind: r.responseKind?.kind || r.singularResource, namespaced: r.scope === 'Namespaced', verbs: r.verbs });
        }
      }
    }
  }
  return found.sort((a, b) => a.group.localeCompare(b.group) || a.kind.localeCompare(b.kind));
}

// find returns the kind of a group and resource.
export async function find(group, resource) {
  const match = (k) => k.group === group && k.resource === resource;
  return sections.flatMap((s) => s.kinds).find(match) ?? [namespaces].find(match) ?? (await all()).find(match);
}

// findByKind returns the kind of an apiVersion and kind, as owner references name it.
export async function findByKind(apiVersion, name) {
  const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : '';
  const match = (k) => k.group === group && k.kind === name;
  return sections.flatMap((s) => s.kinds).find(match) ?? (await all()).find(match);
}

// path returns the API's path of a kind's objects, or of one object.
export function path(k, ns, name, subresource) {
  let p = k.group ? `/apis/${k.group}/${k.version}` : `/api/${k.version}`;
  if (k.namespaced && ns) p += `/namespaces/${encodeURIComponent(ns)}`;
  p += `/${k.resource}`;
  if (name) p += `/${encodeURIComponent(name)}`;
  return subresource ? `${p}/${subresource}` : p;
}

// listLink and objectLink return places in the page.
export const listLink = (k) => `#/list/${k.group || 'core'}/${k.resource}`;
export const objectLink = (k, ns, name, tab = '') => `#/object/${k.group || 'core'}/${k.resource}/${encodeURIComponent(ns || '-')}/${encodeURIComponent(name)}${tab && '/' + tab}`;
