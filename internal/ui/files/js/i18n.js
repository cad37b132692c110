// Texts come from one dictionary per language: i18n/LANGUAGE.json.

export const languages = { en: 'English', zh: '中文' };

let texts = {};
let chosen = 'en';

export const language = () => chosen;

// load reads the dictionary of the stored language, or of the browser's.
export async function load(wanted) {
  const name = wanted ?? localStorage.getItem('knarr.language') ?? (navigator.language.startsWith('zh') ? 'zh' : 'en');
  chosen = name in languages ? name : 'en';
  if (wanted) localStorage.setItem('knarr.language', chosen);
  texts = await (await fetch(`i18n/${chosen}.json`)).json();
  document.documentElement.lang = chosen === 'zh' ? 'zh-CN' : 'en';
}

// t returns a text with its {names} replaced.
export function t(key, values = {}) {
  return (texts[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
}

// age returns how long ago a time is, as kubectl writes it.
export function age(time, now = Date.now()) {
  if (!time) return '';
  const s = Math.max(0, Math.floor((now - new Date(time)) / 1000));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const hours = Math.floor(m / 60);
  if (hours < 8) return m % 60 ? `${hours}h${m % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  return days < 730 ? `${days}d` : `${Math.floor(days / 365)}y`;
}

// when returns a time in the user's format.
export function when(time) {
  return time ? new Date(time).toLocaleString(document.documentElement.lang) : '';
}
