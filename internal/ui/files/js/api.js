// Calls of the API as the page's user: by the session's cookie, or by a pasted bearer token, which
// only this module's memory holds.

let token = '';

export class ApiError extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.reason = body?.reason ?? '';
    this.details = body?.details;
  }
}

// lost is dispatched on window when the server no longer knows the user.
const lost = () => window.dispatchEvent(new Event('knarr-lost'));

export function useToken(text) {
  token = text.trim();
}

// request returns the response of a successful call; the caller reads it.
export async function request(path, { method = 'GET', body, type, accept = 'application/json', signal, headers = {} } = {}) {
  const all = { Accept: accept, 'X-Knarr-UI': '1', ...headers };
  if (token) all.Authorization = `Bearer ${token}`;
  if (body !== undefined) all['Content-Type'] = type ?? 'application/json';
  const response = await fetch(path, { method, headers: all, signal, cache: 'no-store', redirect: 'error', credentials: token ? 'omit' : 'same-origin', body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body) });
  if (response.ok) return response;
  const text = await response.text();
  let status;
  try {
    status = JSON.parse(text);
  } catch {
    status = { message: text.trim() };
  }
  if (response.status === 401) lost();
  throw new ApiError(response.status, status.message || response.statusText || String(response.status), status);
}

export const json = async (path, options) => (await request(path, options)).json();
export const text = async (path, options) => (await request(path, options)).text();

// whoami returns the user's name and groups.
export async function whoami() {
  const answer = await json('/apis/authentication.k8s.io/v1/selfsubjectreviews', { method: 'POST', body: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' } });
  return answer.status.userInfo;
}

// exchange begins a session with the code of a link.
export const exchange = (code) => request('/knarr/v1/ui/session', { method: 'POST', headers: { 'X-Knarr-UI-Code': code } });

// logOut ends the session and forgets the token.
export async function logOut() {
  if (!token) await request('/knarr/v1/ui/session', { method: 'DELETE' });
  token = '';
}

const answers = new Map();

// forgetRights is called when another user logs in.
export const forgetRights = () => answers.clear();

// allowed asks once whether the user may do something. kind is of kinds.js.
export function allowed(verb, kind, ns, name, subresource) {
  const attributes = { verb, group: kind.group, resource: kind.resource, namespace: ns || undefined, name, subresource };
  const key = JSON.stringify(attributes);
  if (!answers.has(key)) {
    if (answers.size > 500) answers.clear();
    const body = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes: attributes } };
    answers.set(key, json('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', { method: 'POST', body }).then((r) => r.status.allowed, () => true));
  }
  return answers.get(key);
}

// lines yields the lines of a streamed response.
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

// socket opens a WebSocket. Browsers send no headers with it: the cookie goes by itself, a token as
// a subprotocol.
export function socket(path, protocols) {
  const all = [...protocols];
  if (token) all.push('base64url.bearer.authorization.k8s.io.' + btoa(token).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, ''));
  return new WebSocket(`wss://${location.host}${path}`, all);
}
