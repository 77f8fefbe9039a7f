// The visible page in few characters. OPTIONS: {text: boolean, max: characters or 0, start: character}.
const {text: TEXT, max: MAX, start: START} = OPTIONS;

// --- lines ---------------------------------------------------------------------------------------------------------

let lines = [], line = '', prefix = '', inline = 0, pre = 0;
const lists = [];

const SPACE = /[\s\u00a0]+/g, UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060\ufeff]+/g;
const escapeText = s => TEXT ? s : s.replace(/&(?=#|\w+;|lt|gt|amp|quot)/g, '&amp;').replace(/<(?=[a-zA-Z\/!?])/g, '&lt;');
const quoted = s => /^[^\s"'<>=`]+$/.test(s) ? s : '"' + s.replace(/"/g, '&quot;').replace(/</g, '&lt;') + '"';
const squeeze = s => (s ?? '').replace(UNSEEN, '').replace(SPACE, ' ').trim();

const put = s => {
  if (!line && prefix) { line = prefix; prefix = ''; }
  line += s;
};
const gap = () => { if (line && !line.endsWith(' ') && line !== '- ') line += ' '; };
const push = l => lines.push(l);
const brk = () => {
  if (inline) return gap();
  line = line.replace(/ +$/, '');
  if (line && line !== '-') push(line);
  line = ''; prefix = '';
};
const say = s => {
  if (pre) return put(escapeText(s.replace(UNSEEN, '')));
  s = s.replace(UNSEEN, '').replace(SPACE, ' ');
  if (s[0] === ' ') { gap(); s = s.slice(1); }
  if (s) put(escapeText(s));
};

// --- links ---------------------------------------------------------------------------------------------------------

const NOISE = /^(utm_\w+|fbclid|gclid|msclkid|mc_[ce]id|igshid|yclid|_ga|ref_src)$/i;
const seen = new Map();
const anchors = [], labels = new Map();
let homes = '';

const target = a => {
  let url;
  try { url = new URL(a.href, document.baseURI); } catch { return a.getAttribute('href'); }
  if (url.protocol === 'javascript:') return '';
  if (url.protocol === 'data:' || url.protocol === 'blob:') return url.href.slice(0, 30) + '…';
  if (url.search)
    for (const key of [...url.searchParams.keys()]) if (NOISE.test(key)) url.searchParams.delete(key);
  let s = url.href;
  const here = location.href.split('#')[0];
  if (s.startsWith(here + '#')) return s.slice(here.length);
  if (url.origin === location.origin) s = s.slice(url.origin.length);
  else if (homes && url.origin === homes) s = '~' + s.slice(homes.length);
  else s = s.replace(/^https?:(\/\/)(www\.)?/, '$1');
  if (s.length > 1) s = s.replace(/\/$/, '');
  return s;
};

// Cut in the middle: a list of links differs at its ends. Two targets never get the same short form.
const shortened = new Map();
const short = (s, most) => {
  for (const head = s.startsWith('//') ? Math.max(s.indexOf('/', 2) + 1, 8) : Math.ceil(most / 3); s.length > Math.max(most, head + 5); most += 8) {
    const cut = s.slice(0, head) + '…' + s.slice(-Math.max(4, most - head - 1)), known = shortened.get(cut) ?? s;
    if (known !== s) continue;
    shortened.set(cut, s);
    s = cut;
    break;
  }
  return s.replace(/[\s<>]/g, encodeURIComponent);
};

// --- what is there -------------------------------------------------------------------------------------------------

const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'HEAD', 'LINK', 'META', 'TITLE', 'BASE', 'PARAM', 'SOURCE', 'TRACK',
  'DATALIST', 'COL', 'COLGROUP', 'OPTION', 'OPTGROUP', 'AREA', 'MAP', 'OBJECT', 'EMBED', 'APPLET', 'FRAMESET', 'RP']);
const ROLES = /^(button|link|checkbox|radio|switch|tab|menuitem|menuitemcheckbox|menuitemradio|option|combobox|textbox|searchbox|slider|spinbutton|treeitem)$/;

const kindOf = (e, tag) => {
  switch (tag) {
    case 'A': return e.hasAttribute('href') ? 'link' : e.hasAttribute('onclick') || ROLES.test(e.getAttribute('role')) ? 'button' : '';
    case 'BUTTON': case 'SUMMARY': return 'button';
    case 'INPUT': return 'input';
    case 'SELECT': case 'TEXTAREA': return 'field';
    case 'VIDEO': case 'AUDIO': return e.controls ? 'media' : '';
  }
  const editable = e.getAttribute('contenteditable');
  if (editable !== null && editable !== 'false') return 'editable';
  const role = e.getAttribute('role');
  if (role && ROLES.test(role)) return 'button';
  if (e.hasAttribute('onclick') || (e.hasAttribute('tabindex') && e.tabIndex >= 0 && !/scroll|auto/.test(getComputedStyle(e).overflowY)))
    return 'button';
  return '';
};

const nameOf = e => {
  const by = e.getAttribute('aria-labelledby');
  const named = by && by.split(/\s+/).map(id => e.getRootNode().getElementById?.(id)?.textContent ?? '').join(' ');
  return squeeze(e.getAttribute('aria-label') || named || e.getAttribute('title') || e.querySelector?.('img[alt]:not([alt=""])')?.alt
    || e.querySelector?.('svg title')?.textContent || e.querySelector?.('[aria-label],[title]')?.ariaLabel || '');
};

const stateOf = e => {
  let s = '';
  if (e.disabled || e.getAttribute('aria-disabled') === 'true') s += ' disabled';
  if (e.readOnly && e.tagName !== 'SELECT') s += ' readonly';
  if (e.checked || e.getAttribute('aria-checked') === 'true') s += ' checked';
  if (e.indeterminate) s += ' indeterminate';
  if (e.required) s += ' required';
  if (e.getAttribute('aria-selected') === 'true') s += ' selected';
  if (e.getAttribute('aria-pressed') === 'true') s += ' pressed';
  if (e.getAttribute('aria-invalid') === 'true') s += ' invalid';
  const expanded = e.getAttribute('aria-expanded');
  if (expanded) s += expanded === 'true' ? ' expanded' : ' collapsed';
  const current = e.getAttribute('aria-current');
  if (current && current !== 'false') s += ' current';
  return s;
};

const attribute = (name, value, most = 80) => {
  value = squeeze(value);
  if (value.length > most) value = value.slice(0, most) + '…';
  return value ? ` ${name}=${quoted(value)}` : '';
};

const field = e => {
  const tag = e.tagName.toLowerCase(), type = tag === 'input' ? e.type : '';
  const n = ga.number(e);
  if (/^(submit|button|reset|image)$/.test(type)) {
    const label = squeeze(e.value || e.alt || nameOf(e) || (type === 'submit' ? 'Submit' : type === 'reset' ? 'Reset' : e.name));
    return TEXT ? say(`[${label}]`) : put(`<button ${n}${stateOf(e)}>${escapeText(label)}</button>`);
  }
  const secret = type === 'password' && e.value ? '•'.repeat(Math.min(8, e.value.length)) : '';
  if (tag === 'select') return select(e, n);
  if (TEXT) return /^(checkbox|radio)$/.test(type) ? say(e.checked ? '[x]' : '[ ]') : say(`[${squeeze(secret || e.value) || e.placeholder || nameOf(e) || ''}]`);
  let s = `<${tag} ${n}`;
  if (type && type !== 'text') s += ` type=${type}`;
  if (e.name) s += attribute('name', e.name);
  const label = e.getAttribute('aria-label') || (e.labels?.length ? '' : nameOf(e));
  if (label && label !== e.placeholder) s += attribute('label', label);
  if (e.placeholder) s += attribute('placeholder', e.placeholder);
  if (/^(checkbox|radio)$/.test(type)) { if (e.value !== 'on') s += attribute('value', e.value, 40); }
  else if (type === 'file') s += attribute('value', [...e.files].map(f => f.name).join(', '));
  else s += attribute('value', secret || e.value, 500);
  put(s + stateOf(e) + '>');
};

const OPTIONS_SHOWN = 25;
const select = (e, n) => {
  const options = [...e.options], chosen = [...e.selectedOptions];
  if (TEXT) return say(`[${chosen.map(o => squeeze(o.text)).join(', ')}]`);
  let shown = options, rest = '';
  if (options.length > OPTIONS_SHOWN) {
    shown = options.filter((o, i) => i < 8 || o.selected);
    rest = ` … ${options.length - shown.length} more: el(${n}).options`;
  }
  put(`<select ${n}${attribute('name', e.name)}${attribute('label', e.labels?.length ? '' : nameOf(e))}${e.multiple ? ' multiple' : ''}${stateOf(e)}>`
    + shown.map(o => `<option${o.selected ? ' selected' : ''}${o.disabled ? ' disabled' : ''}>${escapeText(squeeze(o.text))}`).join('') + rest + '</select>');
};

const control = (e, tag, kind) => {
  if (kind === 'input' || kind === 'field') return field(e);
  const n = ga.number(e);
  if (TEXT) {
    const from = line.length, count = lines.length;
    inline++; children(e); inline--;
    if (lines.length === count && !line.slice(from).trim()) say(nameOf(e));
    return;
  }
  let head;
  if (kind === 'link') {
    head = `<a ${n}\u0001>`;
  } else if (kind === 'media') {
    head = `<${tag.toLowerCase()} ${n}${e.paused ? '' : ' playing'}>`;
  } else {
    const role = e.getAttribute('role');
    const name = tag === 'BUTTON' || role === 'button' || tag === 'A' ? 'button' : tag.toLowerCase();
    head = `<${name} ${n}${role && role !== 'button' ? ' role=' + role : ''}${kind === 'editable' ? ' contenteditable' : ''}`
      + `${tag === 'SUMMARY' && e.parentElement?.open ? ' expanded' : ''}${stateOf(e)}>`;
  }
  const tail = `</${head.slice(1).split(/[ >]/)[0]}>`;
  const lead = line;
  put(head);
  let from = line.length;
  inline++; children(e); inline--;
  let body = line.slice(from);
  if (!body.trim()) { line = line.slice(0, from); put(escapeText(nameOf(e) || (kind === 'link' ? '' : squeeze(e.value ?? '')))); body = line.slice(from); }
  if (kind === 'link') {
    const url = target(e), label = line.slice(from).trim(), key = url.length > 3 ? url : '';
    anchors.push({n, url, key, label, state: stateOf(e)});
    labels.set(label, (labels.get(label) ?? 0) + 1);
    head = head.replace('\u0001', '\u0001' + (anchors.length - 1) + '\u0002');
    line = line.slice(0, from).replace(/\u0001>$/, '\u0001' + (anchors.length - 1) + '\u0002>') + body;
    from = line.length - body.length;
  }
  const trimmed = body.trim();
  line = line.slice(0, from) + trimmed + tail + (body !== trimmed && body.endsWith(' ') ? ' ' : '');
  if (body.startsWith(' ') && lead && !lead.endsWith(' ')) line = lead + ' ' + line.slice(lead.length);
};

// --- the walk ------------------------------------------------------------------------------------------------------

const LIST_FROM = 12;

const children = e => {
  const root = ga.shadowOf(e) ?? (e.tagName === 'SLOT' && e.assignedNodes().length ? null : e);
  const nodes = root ? root.childNodes : e.assignedNodes();
  for (const node of nodes) visit(node);
};

const visit = node => {
  if (node.nodeType === 3) { if (node.data) say(node.data); return; }
  if (node.nodeType !== 1) return;
  const e = node, tag = e.tagName;
  if (SKIP.has(tag)) return;
  if (tag === 'BR') return brk();
  const style = getComputedStyle(e), display = style.display;
  if (display === 'none') return;
  if (e.namespaceURI !== 'http://www.w3.org/1999/xhtml') {
    if (/^math$/i.test(tag)) { say(' ' + (e.getAttribute('alttext') || e.textContent) + ' '); }
    return;
  }
  if (style.visibility !== 'visible') { if (e.firstElementChild) hiddenParent(e); return; }
  if (tag === 'IMG') return image(e);
  if (tag === 'IFRAME' || tag === 'FRAME') return frame(e);
  if (tag === 'HR') return brk();
  const kind = kindOf(e, tag);
  if (kind === 'input' && e.type === 'hidden') return;
  const block = !display.startsWith('inline') && display !== 'contents' && !display.startsWith('ruby') && display !== 'table-cell';
  if (block) brk(); else if (display.length > 6) gap();
  if (kind) control(e, tag, kind);
  else if (tag === 'TR') row(e);
  else if (tag === 'PRE' && !TEXT) preformatted(e);
  else {
    if (/^H[1-6]$/.test(tag)) prefix = TEXT ? '' : `<${tag.toLowerCase()}>`;
    else if (tag === 'LI' && !inline) prefix = '- ';
    if (e.childElementCount > LIST_FROM) list(e); else children(e);
  }
  if (block) brk(); else if (display.length > 6) gap();
};

const hiddenParent = e => { for (const child of e.children) visit(child); };

const list = e => {
  const items = [];
  for (const node of (ga.shadowOf(e) ?? e).childNodes) {
    if (node.nodeType === 1) items.push(lines.length);
    visit(node);
  }
  lists.push({items, end: lines.length, rows: e.tagName === 'TBODY' || e.tagName === 'TABLE'});
};

const row = e => {
  if (inline) return children(e);
  const from = lines.length, cells = [];
  let wide = 0;
  for (const cell of e.children) {
    const at = lines.length;
    visit(cell);
    brk();
    if (lines.length > at + 1) wide = 1;
    if (lines.length > at) cells.push(lines[at]);
    else if (getComputedStyle(cell).display !== 'none') cells.push('');
  }
  if (wide || cells.filter(Boolean).length < 2) return;
  lines.length = from;
  push(cells.join(' | '));
};

const preformatted = e => {
  const at = lines.length;
  pre++; inline++;
  children(e);
  inline--; pre--;
  line = line.replace(/[ \t]+$/gm, '').replace(/^\n+|\n+$/g, '');
  if (line) line = `<pre>${line}</pre>`;
};

const image = e => {
  if (TEXT) return;
  const alt = squeeze(e.alt);
  if (!alt || inline) return;
  put(`<img${attribute('alt', alt)}>`);
};

const frame = e => {
  const box = e.getBoundingClientRect();
  if (box.width < 8 || box.height < 8) return;
  brk();
  let inside = null;
  try { inside = e.contentDocument; } catch { /* of another origin: it is scanned by itself */ }
  const saved = inline;
  inline = 0;
  if (inside?.documentElement) {
    if (inside.body) { visit(inside.body); brk(); }
  } else {
    let i = 0;
    while (i < window.length && window[i] !== e.contentWindow) i++;
    const src = e.src.replace(/^https?:\/\/(www\.)?/, '');
    push(`<iframe ${ga.number(e)} ${src.length > 30 ? src.slice(0, 30) + '…' : src}>`);
  }
  inline = saved;
};

// --- put together --------------------------------------------------------------------------------------------------

const LINKS = /^(- )?(?:<(a|button) [^>]*>[^<]*<\/\2>[ |·•,\/]*)+$/;
const ANCHOR = /<a \d+\u0001(\d+)\u0002>([^<]*)(<\/a>)?/g;
const PROSE = 30, MENU = 18, BARE = 40, NAME = 12;
const heads = (part, alone) => part.replace(ANCHOR, (_, i, label, tail = '') => {
  const a = anchors[i], was = a.key && seen.get(a.key);
  if (was && alone && was.labels.has(a.label)) return `<a ${a.n} =${was.labels.get(a.label)}${a.state}>${tail}`;
  if (was) { was.labels.set(a.label, a.n); return `<a ${a.n} =${was.n}${a.state}>${label}${tail}`; }
  if (a.key) seen.set(a.key, {n: a.n, labels: new Map([[a.label, a.n]])});
  let url = a.url;
  if (alone && url.length > MENU && label.length >= NAME && labels.get(label) === 1) url = url.startsWith('//') ? url.split('/', 3).join('/') : '';
  else url = short(url, !a.label ? BARE : alone ? MENU : PROSE);
  return `<a ${a.n}${url ? ' ' + url : ''}${a.state}>${label}${tail}`;
});
const finish = parts => {
  const out = [];
  let run = false;
  for (let part of parts) {
    if (typeof part !== 'string') { out.push(part); run = false; continue; }
    const links = !TEXT && LINKS.test(part);
    if (!TEXT) part = heads(part, links);
    if (links && run) out[out.length - 1] += ' ' + part.replace(/^- /, '');
    else out.push(part);
    run = links;
  }
  return out.map(s => typeof s !== 'string' ? s : ranges(s.replace(/<\/(a|button)>[ |·•]*(?=<(?:a|button) |$)/g, (m, _, i, whole) => i + m.length < whole.length ? ' ' : '')));
};
// <a 40 =2> <a 41 =3> <a 42 =4> → <a 40-42 =2-4>: a menu that is there twice
const ranges = s => s.replace(/(?:<a \d+ =\d+>(?:<\/a>)? ?){2,}/g, run => {
  const pairs = [...run.matchAll(/<a (\d+) =(\d+)>/g)].map(m => [+m[1], +m[2]]), groups = [];
  for (const [n, was] of pairs) {
    const last = groups.at(-1);
    if (last && n === last[1] + 1 && was === last[3] + 1) { last[1] = n; last[3] = was; }
    else groups.push([n, n, was, was]);
  }
  return groups.map(([a, b, c, d]) => a === b ? `<a ${a} =${c}>` : `<a ${a}-${b} =${c}-${d}>`).join(' ') + (run.endsWith(' ') ? ' ' : '');
});

const began = performance.now();
const hosts = new Map();
for (const a of document.links) if (a.origin !== 'null' && /^http/.test(a.protocol)) hosts.set(a.origin, (hosts.get(a.origin) ?? 0) + 1);
hosts.delete(location.origin);
const top1 = [...hosts].sort((a, b) => b[1] - a[1])[0];
if (top1 && top1[1] > 3) homes = top1[0];
visit(document.body);
brk();
const done = finish(lines);
if (homes && !TEXT) done.unshift('~ = ' + homes);
return {text: done.map(l => typeof l === 'string' ? l : JSON.stringify(l)).join('\n'), ms: performance.now() - began, n: ga.state.last};
