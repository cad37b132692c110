// A list that stays current: pages of a list, then one watch that is resumed from its last
// resourceVersion. Rows come as the server's Table, so that every kind has kubectl's columns.

import { request, json, lines, ApiError } from './api.js';
import { path } from './kinds.js';
import { perFrame } from './dom.js';

const table = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
// Pages are so small that the browser reads one within 50 ms. The first one fills a screen.
const firstPage = 100;
const pageSize = 250;
const drawEvery = 250; // milliseconds between drawings while pages arrive
// A watch is renewed so often that an open page counts as used (sessions end when idle).
const watchSeconds = 240;

export class Live {
  // onChange is called at most once a frame. options: labelSelector, fieldSelector.
  constructor(kind, ns, options, onChange) {
    Object.assign(this, { kind, ns, options, columns: [], rows: new Map(), state: 'loading', error: null, version: 0 });
    this.changed = perFrame(() => !this.stopper.signal.aborted && onChange(this));
    this.stopper = new AbortController();
    this.run();
  }

  stop() {
    this.stopper.abort();
    this.rows.clear();
  }

  async run() {
    const signal = this.stopper.signal;
    let wait = 500;
    let resourceVersion = '';
    while (!signal.aborted) {
      try {
        if (!resourceVersion) resourceVersion = await this.list();
        const began = Date.now();
        resourceVersion = await this.watch(resourceVersion);
        if (Date.now() - began > 2000) wait = 500;
        else await pause(wait, signal); // a server that ends watches at once
      } catch (err) {
        if (signal.aborted) return;
        if (err instanceof ApiError && err.status === 410) {
          resourceVersion = '';
          continue;
        }
        this.fail(err);
        if (err instanceof ApiError && [401, 403, 404, 405].includes(err.status)) return;
        await pause(wait, signal);
        resourceVersion = err.resourceVersion ?? '';
        wait = Math.min(wait * 2, 30000);
      }
    }
  }

  fail(error) {
    this.state = error instanceof ApiError && error.status === 403 ? 'forbidden' : 'error';
    this.error = error;
    this.changed();
  }

  query(more) {
    const q = new URLSearchParams({ includeObject: 'Metadata', ...more });
    for (const name of ['labelSelector', 'fieldSelector']) if (this.options?.[name]) q.set(name, this.options[name]);
    return `${path(this.kind, this.ns)}?${q}`;
  }

  // list reads all pages and returns the list's resourceVersion. Rows are shown while pages arrive.
  async list() {
    const found = new Map();
    const first = this.rows.size === 0;
    let next = '';
    let drawn = 0;
    for (;;) {
      const page = await json(this.query(next ? { limit: pageSize, continue: next } : { limit: firstPage }), { accept: table, signal: this.stopper.signal });
      if (page.columnDefinitions?.length) this.columns = page.columnDefinitions;
      for (const row of page.rows ?? []) {
        const r = rowOf(row);
        found.set(r.key, r);
        if (first) this.rows.set(r.key, r);
      }
      next = page.metadata?.continue;
      if (next) {
        if (performance.now() - drawn > drawEvery) {
          drawn = performance.now();
          this.touch();
        }
        continue;
      }
      this.rows = found;
      this.state = 'live';
      this.error = null;
      this.touch();
      return page.metadata.resourceVersion;
    }
  }

  touch() {
    this.version++;
    this.changed();
  }

  // watch applies changes until the server ends the watch, and returns the last resourceVersion.
  async watch(resourceVersion) {
    let last = resourceVersion;
    try {
      const response = await request(this.query({ watch: 'true', resourceVersion, allowWatchBookmarks: 'true', timeoutSeconds: watchSeconds }), { accept: table, signal: this.stopper.signal });
      this.state = 'live';
      for await (const line of lines(response)) {
        if (!line) continue;
        const event = JSON.parse(line);
        if (event.type === 'ERROR') throw new ApiError(event.object.code, event.object.message, event.object);
        const rows = event.object.rows ?? [];
        for (const row of rows) {
          last = row.object.metadata.resourceVersion ?? last;
          if (event.type === 'BOOKMARK') continue;
          const r = rowOf(row);
          if (event.type === 'DELETED') this.rows.delete(r.key);
          else this.rows.set(r.key, r);
        }
        last = rows.length ? last : (event.object.metadata?.resourceVersion ?? last);
        if (event.type !== 'BOOKMARK') this.touch();
      }
      return last;
    } catch (err) {
      if (!(err instanceof ApiError)) err.resourceVersion = last;
      throw err;
    }
  }
}

// rowOf keeps what is shown, and forgets the rest of the metadata.
function rowOf(row) {
  const m = row.object.metadata;
  let changed = m.creationTimestamp;
  for (const f of m.managedFields ?? []) if (f.time > changed) changed = f.time;
  return { key: `${m.namespace ?? ''}/${m.name}`, ns: m.namespace ?? '', name: m.name, uid: m.uid, labels: m.labels, created: m.creationTimestamp, changed, deleting: !!m.deletionTimestamp, cells: row.cells };
}

function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      done();
    });
  });
}

// liveObject watches one object and calls onChange with it, or with null when it is gone.
export function liveObject(kind, ns, name, onChange, onError) {
  const stopper = new AbortController();
  const signal = stopper.signal;
  (async () => {
    let wait = 500;
    while (!signal.aborted) {
      try {
        const object = await json(path(kind, ns, name), { signal });
        onChange(object);
        const q = new URLSearchParams({ watch: 'true', fieldSelector: `metadata.name=${name}`, resourceVersion: object.metadata.resourceVersion, timeoutSeconds: watchSeconds });
        for await (const line of lines(await request(`${path(kind, ns)}?${q}`, { signal }))) {
          if (!line) continue;
          const event = JSON.parse(line);
          if (event.type === 'DELETED') return onChange(null);
          if (event.type === 'ERROR') break;
          onChange(event.object);
          wait = 500;
        }
      } catch (err) {
        if (signal.aborted) return;
        onError(err);
        if (err instanceof ApiError && [401, 403, 404].includes(err.status)) return;
      }
      await pause(wait, signal);
      wait = Math.min(wait * 2, 30000);
    }
  })();
  return () => stopper.abort();
}
