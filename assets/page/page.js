// The page script: what is visible in few characters (scan), and what an action changed (begin … end). It runs as the body
// of `async (args) => {…}` in a world of its own, once in each frame; see simphtml.py for what comes of it.
//
// A page is lines, one for each block of text, with these tags:
//   <h2>Order                             a heading
//   <a 12 /path>label                     link number 12; it ends at </a>, at the next link or with the line
//   <a 31 =12>label                       the same target as link 12;  <a 40-45 =2-7>  links 2 to 7 once more
//   <button 8 disabled>, <input 5 name=q value=…>, <select 6 …><option selected>…, <div 9 role=tab selected>
//   <p 57 +312>First words…               312 more characters are in el(57).innerText
//   〃 First words…                        a line that was there before
//   <frame 20 host/path>                  what follows up to </frame> is in a frame
//   ~ = https://…                         ~ stands for this origin in targets
//
// args: {token: name of the event that el(n) sends, phase: "scan" | "begin" | "end" | "find",
//   text: boolean, start and max: characters that are wanted (long lists get lines of their own beyond max), bases: {id of a frame: number},
//   numbers: [n, …] to find, texts: {key: what to say of what is not shown as it is}}.

// --- what a document remembers -------------------------------------------------------------------------------------

const ga = (globalThis.genericagent ??= (() => {
  const numbers = new WeakMap(), elements = new Map(), tokens = new Set();
  const state = {base: window === window.top ? 0 : null, last: 0, watch: null, id: Math.random().toString(36).slice(2)};

  // An element keeps its number for as long as its document lives.
  const number = e => {
    let n = numbers.get(e);
    if (n === undefined) {
      n = state.base + ++state.last;
      numbers.set(e, n);
      elements.set(n, new WeakRef(e));
    }
    return n;
  };
  const element = n => elements.get(n)?.deref() ?? null;

  // Only an extension's world has chrome.dom, which opens closed roots too.
  const dom = globalThis.chrome?.dom;
  const shadowOf = e => e.shadowRoot ?? (dom && e instanceof HTMLElement ? dom.openOrClosedShadowRoot(e) : null);

  // Two worlds of a document share its nodes but no objects. The page's world sends an event with a loose element as
  // relatedTarget; we hang that element's attribute node on the wanted element, and its ownerElement tells the other side
  // which one that is, wherever it lives: in a closed shadow root or a frame of the same origin. See el.js.
  const answer = event => {
    const carrier = event.relatedTarget, mark = carrier?.getAttributeNode('data-el');
    const wanted = mark && element(Number(mark.value));
    if (!wanted) return;
    carrier.setAttribute('data-connected', wanted.isConnected);
    carrier.removeAttributeNode(mark);
    wanted.setAttributeNode(mark);
  };
  const listen = token => {
    if (!token || tokens.has(token)) return;
    tokens.add(token);
    window.addEventListener(token, answer, true);
  };
  return {state, number, element, shadowOf, listen};
})());
ga.listen(args.token);

// [i, j, …] joined by dots: the j-th frame of the i-th frame of the top window. Windows may be compared across origins.
// Those in shadow roots are in no such list: they are all ?, and told apart by address and size.
const placeOf = (w, parent) => {
  for (let i = 0; i < parent.length; i++) if (parent[i] === w) return i;
  return '?';
};
const pathOf = w => {
  const path = [];
  for (; w !== w.parent; w = w.parent) path.unshift(placeOf(w, w.parent));
  return path.join('.');
};
const readByParent = () => {
  try { return window.frameElement !== null; } catch { return false; }
};
const PATH = pathOf(window);

if (args.phase === 'find') return {found: args.numbers.filter(n => ga.element(n)).length, url: location.href};
if (readByParent()) return null;
if (ga.state.base === null) {
  if (args.phase !== 'scan') return null;
  if (!args.bases?.[ga.state.id]) return {path: PATH, id: ga.state.id, needs_base: true};
  ga.state.base = args.bases[ga.state.id];
}

// --- lines ---------------------------------------------------------------------------------------------------------

const notice = (key, values = {}) => (args.texts?.[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const lines = [], owners = [], lists = [], regions = [], notices = [], frames = [];
let skipped = null, blocked = args.phase !== 'scan'; // a dialog that was read first, and whether all else is covered
let line = '', prefix = '', block = null, inline = 0, pre = 0, veiled = 0;

const SPACE = /[\s\u00a0]+/g;
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060\ufeff]+/g;
const escaped = s => s.replace(/&(?=#|\w+;|lt|gt|amp|quot)/g, '&amp;').replace(/<(?=[\w\/!?])/g, '&lt;');
const plain = s => s.replace(/&lt;/g, '<').replace(/&amp;/g, '&');
const quoted = s => /^[^\s"'<>=`]+$/.test(s) ? s : '"' + s.replace(/"/g, '&quot;').replace(/</g, '&lt;').replace(/>/g, '&gt;') + '"';
const squeeze = s => (s ?? '').replace(UNSEEN, '').replace(SPACE, ' ').trim();
const clip = (s, most) => s.length > most ? s.slice(0, most).trimEnd() + '…' : s;

const put = s => {
  if (!line && prefix) { line = prefix; prefix = ''; }
  line += s;
};
const gap = () => { if (line && !line.endsWith(' ')) line += ' '; };
const brk = () => {
  if (inline) return gap();
  line = line.trimEnd();
  if (line) { lines.push(line); owners.push(block); }
  line = prefix = '';
};
const say = s => {
  if (pre) return put(escaped(s.replace(UNSEEN, '')));
  s = s.replace(UNSEEN, '').replace(SPACE, ' ');
  if (s[0] === ' ') { gap(); s = s.slice(1); }
  if (s) put(escaped(s));
};

// A field named "children" hides a form's own property of that name, so these are asked of the prototypes.
const asked = (proto, name) => { const {get} = Object.getOwnPropertyDescriptor(proto, name); return e => get.call(e); };
const nodesOf = asked(Node.prototype, 'childNodes'), childrenOf = asked(Element.prototype, 'children');
const countOf = asked(Element.prototype, 'childElementCount'), tagOf = asked(Element.prototype, 'tagName');
const attributesOf = asked(Element.prototype, 'attributes'), typeOf = asked(Node.prototype, 'nodeType');

// --- what an element is --------------------------------------------------------------------------------------------

const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'HEAD', 'LINK', 'META', 'TITLE', 'BASE', 'PARAM', 'SOURCE', 'TRACK',
  'DATALIST', 'COL', 'COLGROUP', 'OPTION', 'OPTGROUP', 'AREA', 'MAP', 'OBJECT', 'EMBED', 'FRAMESET', 'RP']);
const ROLES = /^(button|link|checkbox|radio|switch|tab|menuitem\w*|option|combobox|textbox|searchbox|slider|spinbutton|treeitem)$/;
const CONTROLS = 'a[href],button,input,select,textarea,summary,[role],[onclick],[tabindex],[contenteditable],video,iframe';

// '' for what is no control. `style` is the element's computed one.
const kindOf = (e, tag, style) => {
  switch (tag) {
    case 'A': if (e.hasAttribute('href')) return 'link'; break;
    case 'BUTTON': case 'SUMMARY': return 'button';
    case 'INPUT': return e.type === 'hidden' ? '' : 'field';
    case 'SELECT': case 'TEXTAREA': return 'field';
    case 'VIDEO': case 'AUDIO': return e.controls ? 'media' : '';
    case 'LABEL': return e.control && /^(checkbox|radio|file)$/.test(e.control.type) && !e.control.checkVisibility() ? 'label' : '';
  }
  if (!attributesOf(e).length) return '';
  const role = e.getAttribute('role'), editable = e.getAttribute('contenteditable');
  if (editable !== null && editable !== 'false') return 'editable';
  if (role && ROLES.test(role) || e.hasAttribute('onclick')) return 'button';
  if (e.hasAttribute('tabindex') && e.tabIndex >= 0 && !/auto|scroll/.test(style.overflowX + style.overflowY)) return 'button';
  if (style.cursor === 'pointer' && !inline && tag !== 'BODY' && e.parentElement && getComputedStyle(e.parentElement).cursor !== 'pointer'
    && !e.querySelector(CONTROLS)) return 'button';
  return '';
};

const nameOf = e => {
  const by = e.getAttribute('aria-labelledby');
  const named = by && by.split(/\s+/).map(id => e.getRootNode().getElementById?.(id)?.textContent ?? '').join(' ');
  return squeeze(e.getAttribute('aria-label') || named || e.getAttribute('title') || e.querySelector('img[alt]:not([alt=""])')?.alt
    || e.querySelector('svg title')?.textContent || e.querySelector('[aria-label]')?.ariaLabel || e.querySelector('[title]')?.title);
};

const STATES = ['checked', 'selected', 'pressed', 'invalid', 'disabled', 'readonly', 'required'];
const stateOf = e => {
  if (e.tagName === 'A' && !e.getAttributeNames().some(name => name.startsWith('aria-'))) return covered(e) ? ' covered' : '';
  let s = '';
  for (const name of STATES) if (e.getAttribute('aria-' + name) === 'true' || e[name === 'readonly' ? 'readOnly' : name] === true) s += ' ' + name;
  if (e.indeterminate || e.getAttribute('aria-checked') === 'mixed') s += ' indeterminate';
  const expanded = e.getAttribute('aria-expanded') ?? (e.tagName === 'SUMMARY' && e.parentElement ? String(!!e.parentElement.open) : null);
  if (expanded) s += expanded === 'true' ? ' expanded' : ' collapsed';
  const current = e.getAttribute('aria-current');
  if (current && current !== 'false') s += ' current';
  if (covered(e)) s += ' covered';
  return s;
};

// Something else is painted over its middle, so a user could not click it. Beyond the window nobody can tell.
const covered = e => {
  if (blocked) return false;
  const box = e.getBoundingClientRect(), x = box.left + box.width / 2, y = box.top + box.height / 2;
  if (box.width < 2 || box.height < 2 || x < 0 || y < 0 || x >= innerWidth || y >= innerHeight || e.ownerDocument !== document) return false;
  const root = e.getRootNode(), hit = root.elementFromPoint?.(x, y);
  if (!hit || hit === e || hit.contains(e) || e.contains(hit) || getComputedStyle(e).pointerEvents === 'none') return false;
  if (hit.shadowRoot || e.getClientRects().length > 1 || [...e.labels ?? []].some(l => l.contains(hit))) return false;
  const over = hit.getBoundingClientRect();
  return over.left <= box.left + 1 && over.right >= box.right - 1 && over.top <= box.top + 1 && over.bottom >= box.bottom - 1;
};

const attribute = (name, value, most = 80) => (value = clip(squeeze(value), most)) && ` ${name}=${quoted(value)}`;

// --- controls ------------------------------------------------------------------------------------------------------

const OPTIONS_SHOWN = 25;
const anchors = new Map(), labels = new Map(); // number → link, label → how many links have it

const field = e => {
  const tag = e.tagName.toLowerCase(), type = tag === 'input' ? e.type : '', n = ga.number(e), state = stateOf(e);
  if (/^(submit|button|reset|image)$/.test(type)) {
    const label = squeeze(e.value || e.alt || nameOf(e) || {submit: 'Submit', reset: 'Reset'}[type] || e.name);
    return put(`<button ${n}${state}>${escaped(label)}</button>`);
  }
  let s = `<${tag} ${n}${type && type !== 'text' ? ' type=' + type : ''}${attribute('name', e.name, e.placeholder ? 24 : 80)}`;
  const label = e.getAttribute('aria-label') || (e.labels?.length ? '' : nameOf(e));
  if (label !== e.placeholder) s += attribute('label', label);
  s += attribute('placeholder', e.placeholder);
  if (tag === 'select') return put(s + (e.multiple ? ' multiple' : '') + state + '>' + choices(e, n) + '</select>');
  if (/^(checkbox|radio)$/.test(type)) s += e.value === 'on' ? '' : attribute('value', e.value, 40);
  else if (type === 'password') s += e.value && ` value=${'•'.repeat(Math.min(8, e.value.length))}`;
  else if (type === 'file') s += attribute('value', [...e.files].map(f => f.name).join(', '));
  else s += attribute('value', e.value, 500);
  put(s + state + '>');
};

const choices = (e, n) => {
  const all = [...e.options];
  const shown = all.length > OPTIONS_SHOWN ? all.filter((o, i) => i < 8 || o.selected) : all;
  const texts = shown.map(o => `<option${o.selected ? ' selected' : ''}${o.disabled ? ' disabled' : ''}>${escaped(squeeze(o.text))}`);
  return texts.join('') + (shown.length < all.length ? `<option> ${notice('page_options', {count: all.length - shown.length, n})}` : '');
};

const headOf = (e, tag, kind, n) => {
  const role = e.getAttribute('role'), state = stateOf(kind === 'label' ? e.control : e);
  switch (kind) {
    case 'link': return `<a ${n}\u0001${state}>`;
    case 'label': return `<label ${n} type=${e.control.type}${state}>`;
    case 'media': return `<${tag.toLowerCase()} ${n}${e.paused ? '' : ' playing'}>`;
    case 'editable': return `<${tag.toLowerCase()} ${n} contenteditable${attribute('label', nameOf(e))}${state}>`;
  }
  const button = tag === 'BUTTON' || role === 'button' || tag === 'A';
  return `<${button ? 'button' : tag.toLowerCase()} ${n}${role && role !== 'button' ? ' role=' + role : ''}${state}>`;
};

const LARGE = 200; // characters in a control that is a part of the page rather than a word in it
const control = (e, tag, kind) => {
  if (kind === 'field') return field(e);
  const n = ga.number(e), head = headOf(e, tag, kind, n), lead = line;
  const title = kind === 'link' && !inline && !line && countOf(e) && e.querySelector('h1,h2,h3,h4,h5,h6');
  if (title && !prefix.startsWith('<h')) prefix = `<${title.tagName.toLowerCase()}>`;
  const large = !inline && countOf(e) && (kind === 'editable' || e.textContent.length > LARGE && e.innerText.length > LARGE);
  put(head);
  if (kind === 'link') anchors.set(n, {href: String(e.href?.baseVal ?? e.href), label: ''});
  if (large) { children(e); return; }
  const from = line.length;
  inline++; children(e); inline--;
  let body = line.slice(from);
  const drawn = !body.trim();
  if (kind === 'editable') body = body.trim();
  else if (kind === 'link' ? drawn : !/[\p{L}\p{N}]/u.test(body)) body = escaped(nameOf(e)) || body.trim() || (kind === 'link' ? '' : escaped(squeeze(String(e.value ?? ''))));
  const label = body.trim(), tail = `</${head.slice(1, head.search(/[ >]/))}>`;
  if (kind === 'link') { Object.assign(anchors.get(n), {label, drawn}); labels.set(label, (labels.get(label) ?? 0) + 1); }
  line = line.slice(0, from) + label + tail;
  if (body.endsWith(' ')) line += ' ';
  if (body.startsWith(' ') && lead && !lead.endsWith(' ')) line = lead + ' ' + line.slice(lead.length);
};

// --- the walk ------------------------------------------------------------------------------------------------------

const LIST_FROM = 12;
const REGION = new RegExp('(?:^|[-_ ])(?:\\w*(?:footer|sidebar|comments?|newsletter|promo|widget|related\\w*|recirc\\w*|sponsor\\w*|recommend\\w*)|foot'
  + '|aside|cookies?|consent|gdpr|subscri\\w+|sign-?up|register|login|advert\\w*|ads?|legal|copyright|disclaimer|shar(?:e|ing)|social'
  + '|popup|modal|overlay|banner|nav\\w*|menu|breadcrumbs?|toolbar|tags|trending|popular|most|suggested\\w*|teasers?|excerpts?|carousel|slider'
  + '|slideshow|rail|timeline|author|bio|credits?|hide|hidden|sr-only|screen-reader\\w*)(?=[-_ ]|$)', 'i');
const sounding = new Map(); // what an element is called → whether that sounds like a region
const soundsLike = name => {
  if (!sounding.has(name)) sounding.set(name, REGION.test(name));
  return sounding.get(name);
};
const isRegion = (e, tag) => /^(FOOTER|ASIDE|NAV)$/.test(tag) || /^(contentinfo|complementary|navigation|banner)$/.test(e.getAttribute('role'))
  || (e.id || e.className) && soundsLike(`${e.id} ${e.getAttribute('class') ?? ''}`);

const children = e => {
  const root = ga.shadowOf(e) ?? e, given = root.tagName === 'SLOT' ? root.assignedNodes() : [];
  for (const node of given.length ? given : nodesOf(root)) visit(node);
};

const PLAIN = /^(B|I|EM|STRONG|CODE|SUP|SUB|SMALL|U|CITE|ABBR|FONT|TT|VAR|KBD|MARK|WBR)$/; // no page hides these by their tag alone
const visit = node => {
  const type = typeOf(node);
  if (type === 3) return say(node.data);
  if (type !== 1) return;
  const saved = [inline, pre, veiled, block];
  try {
    visitElement(node, tagOf(node));
  } catch (error) { // the rest of the page can be read
    [inline, pre, veiled, block] = saved;
    put(notice('page_broken', {why: error}));
  }
};

const visitElement = (e, tag) => {
  if (SKIP.has(tag)) return;
  if (tag === 'BR') return brk();
  if (e === skipped) return;
  if (!veiled && PLAIN.test(tag) && !attributesOf(e).length) return children(e);
  const style = getComputedStyle(e), display = style.display;
  if (display === 'none' || unseen(e, style, tag)) return;
  if (e.namespaceURI !== 'http://www.w3.org/1999/xhtml') return drawing(e, tag);
  if (style.visibility !== 'visible') {
    veiled++;
    for (const child of childrenOf(e)) visit(child);
    veiled--;
    return;
  }
  switch (tag) {
    case 'IMG': return image(e);
    case 'IFRAME': case 'FRAME': return frame(e);
    case 'HR': return brk();
    case 'CANVAS': if (e.width * e.height > 20000) put('<canvas>'); return;
  }
  const kind = kindOf(e, tag, style), outer = block;
  const blocky = !/^(inline|contents|ruby|table-cell)/.test(display);
  if (blocky) { brk(); block = e; } else if (display.length > 8) gap();
  const from = lines.length;
  if (kind) control(e, tag, kind);
  else if ((tag === 'TR' || e.role === 'row') && !inline) row(e);
  else if (tag === 'PRE' && !inline) preformatted(e);
  else {
    if (/^H[1-6]$/.test(tag)) prefix = `<${tag.toLowerCase()}>`;
    else if (tag === 'LI' && !inline) prefix = '- ';
    if (tag === 'DETAILS' && !e.open) { for (const child of childrenOf(e)) if (child.tagName === 'SUMMARY') visit(child); }
    else if (countOf(e) > LIST_FROM && !inline && isList(e, tag)) list(e);
    else children(e);
  }
  if (blocky) { brk(); block = outer; } else if (display.length > 8) gap();
  if (lines.length > from && isRegion(e, tag)) regions.push({from, to: lines.length});
  if (lines.length > from && /^(alert|status|alertdialog)$/.test(e.role)) notices.push({from, to: lines.length});
};

// Hidden though it has a box. What is transparent further down the page may be meant to appear on scrolling.
const unseen = (e, style, tag) => {
  if (style.opacity === '0' && tag !== 'INPUT') {
    const top = e.getBoundingClientRect().top;
    if (top < innerHeight || !squeeze(e.textContent) && !e.querySelector('img')) return true; // icons are for the pointer
  }
  if (style.display.startsWith('inline')) return false;
  return style.overflowY === 'hidden' && (e.offsetHeight === 0 || e.offsetWidth === 0) || style.contentVisibility === 'hidden';
};

const drawing = (e, tag) => {
  if (tag.toLowerCase() === 'math') return say(' ' + (e.getAttribute('alttext') || e.textContent) + ' ');
  const texts = [...e.querySelectorAll('text')].map(t => t.textContent).join(' ');
  if (texts) say(` ${texts} `);
};

// A list by its tag, or because nearly all in it is of one kind and no plain text.
const isList = (e, tag) => {
  if (/^(UL|OL|TBODY|TABLE|DL)$/.test(tag) || /^(list|feed|grid|table|listbox|rowgroup)$/.test(e.getAttribute('role'))) return true;
  const count = new Map();
  for (const child of childrenOf(e)) if (/^(DIV|ARTICLE|SECTION|LI|A|TR)$/.test(child.tagName)) {
    const kind = `${child.tagName} ${child.classList[0] ?? ''}`;
    count.set(kind, (count.get(kind) ?? 0) + 1);
  }
  return Math.max(0, ...count.values()) > countOf(e) * 0.7;
};
const list = e => {
  const items = [], root = ga.shadowOf(e) ?? e;
  for (const node of nodesOf(root)) {
    if (typeOf(node) === 1) { brkIfBlock(node); if (items.at(-1) !== lines.length) items.push(lines.length); }
    visit(node);
  }
  if (items.length > LIST_FROM) lists.push({items, end: lines.length, rows: /^(TBODY|TABLE)$/.test(e.tagName) || /^(grid|table|rowgroup)$/.test(e.role)});
};
const brkIfBlock = e => { if (line && !getComputedStyle(e).display.startsWith('inline')) brk(); };

// One line a row, unless a cell holds blocks of its own (then it is a layout, not a table).
const row = e => {
  const from = lines.length, cells = [];
  for (const cell of childrenOf(e)) {
    const at = lines.length;
    visit(cell);
    brk();
    if (lines.length > at + 1) cells.wide = true;
    if (lines.length > at) cells.push(lines[at]);
    else if (getComputedStyle(cell).display !== 'none') cells.push('');
  }
  if (cells.wide || cells.filter(Boolean).length < 2 && (cells[0] || lines.length === from)) return;
  lines.length = owners.length = from;
  lines.push(cells.join(' | ').replace(/(?: \| )+$/, ''));
  owners.push(e);
};

const preformatted = e => {
  pre++; inline++;
  children(e);
  inline--; pre--;
  line = line.split('\n').map(s => s.trimEnd()).join('\n').replace(/^\n+/, '').trimEnd(); // a pattern would try each blank anew
  if (line) line = `<pre>${line}</pre>`;
};

const image = e => {
  if (inline || !e.alt || e.width && e.width < 24) return;
  put(`<img${attribute('alt', e.alt)}>`);
};

const frame = e => {
  const box = e.getBoundingClientRect();
  if (box.width < 8 || box.height < 8) return;
  brk();
  const saved = [inline, block];
  inline = 0;
  let inside = null;
  try { inside = e.contentDocument; } catch { /* of another origin: it is scanned by itself */ }
  if (inside?.body) {
    const from = lines.length;
    visit(inside.body);
    brk();
    if (lines.length > from) { lines.splice(from, 0, `<frame ${ga.number(e)}${attribute('title', e.title)}>`); owners.splice(from, 0, e); lines.push('</frame>'); owners.push(e); }
  } else if (!inside) {
    const outer = e.ownerDocument.defaultView, path = pathOf(outer);
    const src = e.src.replace(/^https?:\/\/(www\.)?/, '');
    lines.push(`<frame ${ga.number(e)} ${clip(src.split('?')[0], 30)}>`);
    owners.push(e);
    frames.push({path: path + (path && '.') + placeOf(e.contentWindow, outer), at: lines.length - 1, href: e.src, size: [e.clientWidth, e.clientHeight]});
  }
  [inline, block] = saved;
};

// --- links in short ------------------------------------------------------------------------------------------------

const NOISE = /^(utm_\w+|fbclid|gclid|msclkid|mc_[ce]id|igshid|yclid|_ga|ref_src)$/i;
const TRACKED = /[?&](utm_|fbclid|gclid|msclkid|mc_|igshid|yclid|_ga|ref_src)/i;
let home = ''; // the origin that most links to elsewhere have, written ~

const ORIGIN = location.origin === 'null' ? '\0' : location.origin, HERE = location.href.split('#')[0] + '#';
const targetOf = href => {
  if (!/^(https?|file):/.test(href)) return href.startsWith('javascript:') ? '' : clip(href, 60);
  if (TRACKED.test(href)) {
    const url = new URL(href);
    for (const key of [...url.searchParams.keys()]) if (NOISE.test(key)) url.searchParams.delete(key);
    href = url.href;
  }
  if (href.startsWith(HERE)) return href.slice(HERE.length - 1);
  let s = href;
  if (s.startsWith(ORIGIN + '/')) s = s.slice(ORIGIN.length);
  else if (home && s.startsWith(home + '/')) s = '~' + s.slice(home.length);
  else s = s.replace(/^https?:(\/\/)(www\.)?/, '$1');
  return s.length > 1 ? s.replace(/\/$/, '') : s;
};

const findHome = () => {
  const count = new Map();
  for (const {href} of anchors.values()) {
    const origin = /^https?:\/\/[^/]+/.exec(href)?.[0];
    if (origin && origin !== ORIGIN) count.set(origin, (count.get(origin) ?? 0) + 1);
  }
  const [most] = [...count].sort((a, b) => b[1] - a[1]);
  if (most?.[1] > 3) home = most[0];
  sites.add(site(location.hostname)).add(home && site(new URL(home).hostname));
};

// Cut in the middle, as targets differ at their ends; two different targets never look the same.
let known;
const short = (s, most) => {
  for (const head = s.startsWith('//') ? Math.max(s.indexOf('/', 2) + 1, 8) : Math.ceil(most / 3); s.length > Math.max(most, head + 5); most += 8) {
    const cut = s.slice(0, head) + '…' + s.slice(-Math.max(4, most - head - 1)), of = known.get(cut) ?? s;
    if (of !== s) continue;
    known.set(cut, s);
    return cut;
  }
  return s;
};
const inTag = s => s.replace(/[\s<>]/g, encodeURIComponent);

// A picture and a headline that lead to the same place: <a 12+13 /path>headline
const pairUp = () => {
  let before = null;
  for (const [n, a] of anchors) {
    a.url = targetOf(a.href);
    a.n = n;
    if (before && a.url && a.url === before.url && !before.twin && (a.drawn || before.drawn) && (!before.label || !a.label || a.label === before.label)) {
      const [twin, kept] = before.drawn ? [before, a] : [a, before];
      twin.twin = true;
      kept.others = `${kept.others ?? ''}+${twin.n}`;
      if (twin.label) labels.set(twin.label, labels.get(twin.label) - 1);
      if (twin === a) continue;
    }
    before = a;
  }
};

// How much a target may cost, by how long the page would be: among other text, in a menu, without a label. From `name`
// characters on a label in a menu says enough, unless another link has it too; of other sites the host is said.
const LEVELS = [{from: 0, prose: 100, menu: 100, bare: 100}, {from: 5000, prose: 30, menu: 18, bare: 40, name: 12, fold: true},
  {from: 7000, prose: 16, menu: 0, bare: 16, name: 2, fold: true, hard: true}];

const site = host => host.split('.').slice(-2).join('.');
const sites = new Set();
const briefly = (url, label, menu, level, before) => {
  if (!label) return short(url, level.bare);
  const host = url.startsWith('//') && url.slice(2).split('/')[0];
  if (menu && label.length >= level.name && url.length > level.menu && labels.get(label) === 1) {
    const said = level.hard && (host === before || host && (sites.has(site(host)) || host.includes(label.toLowerCase().replace(/\W/g, ''))));
    return host && !said ? '//' + host : '';
  }
  return level.hard && host ? '//' + host : short(url, menu ? level.menu || 12 : level.prose);
};

// --- put together --------------------------------------------------------------------------------------------------

const MENU = /^(?:- |<h\d>)?(?:<(a|button) [^>]*>[^<]*<\/\1>[ |·•,\/]*)+$/;
const ANCHOR = /<a (\d+)\u0001([^>]*)>([^<]*)(<\/a>)?/g;
const ENDS = /<\/(?:a|button)>[ |·•]*(?=<(?:a|button) |$)|<\/(?!pre|frame)\w+>$/g;

const linked = (s, menu, level, seen, heading = s.startsWith('<h')) => s.replace(ANCHOR, (_, n, state, label, tail = '') => {
  const a = anchors.get(+n), url = a.url;
  if (a.twin) return '';
  if (a.others) n += a.others;
  const was = url.length > 3 && seen.get(url);
  if (was && menu && !heading && was.labels.has(label)) return `<a ${n} =${was.labels.get(label)}${state}>${tail}`;
  if (was) { was.labels.set(label, n); return `<a ${n} =${was.n}${state}>${label}${tail}`; }
  seen.set(url, {n, labels: new Map([[label, n]])});
  const shown = briefly(url, label, menu, level, seen.host);
  seen.host = url.startsWith('//') ? url.slice(2).split('/')[0] : '';
  return `<a ${n}${shown && ' ' + inTag(shown)}${state}>${label}${tail}`;
});

// Without the ends that are plain to see.
const tidy = s => s.replace(ENDS, (m, i, whole) => i + m.length < whole.length ? ' ' : '');

// <a 40 =2> <a 41 =3> <a 42 =4> → <a 40-42 =2-4>: a menu that is there twice
const ranges = s => s.replace(/(?:<a \d+ =\d+>(?:<\/a>)? ?){2,}/g, run => {
  const groups = [];
  for (const [, n, was] of run.matchAll(/<a (\d+) =(\d+)>/g)) {
    const last = groups.at(-1);
    if (last && +n === last[1] + 1 && +was === last[3] + 1) { last[1]++; last[3]++; }
    else groups.push([+n, +n, +was, +was]);
  }
  return groups.map(([a, b, c, d]) => a === b ? `<a ${a} =${c}>` : `<a ${a}-${b} =${c}-${d}>`).join(' ') + (run.endsWith(' ') ? ' ' : '');
});

const PROSE = 80, PARAGRAPH = 120, ARTICLE = 1000;
const words = s => s.replace(/<(a|button)[^>]*>[^<]*<\/\1>|<[^>]*>/g, '');
// Lines of boilerplate; null where there is no long text beside it: in forms, lists, tools everything may be what counts.
const folding = least => {
  const prose = lines.map(l => { const n = words(l).length; return n < least ? 0 : n; }), sum = [0];
  for (const n of prose) sum.push(sum.at(-1) + n);
  const folded = new Uint8Array(lines.length), all = sum.at(-1);
  for (const {from, to} of regions) if (sum[to] - sum[from] < all / 4) folded.fill(1, from, to);
  for (const {from, to} of notices) folded.fill(0, from, to); // what the page tells the user
  const read = prose.reduce((total, n, i) => total + (folded[i] || n < PARAGRAPH || lines[i].includes(' | ') ? 0 : n), 0);
  return read < ARTICLE ? null : folded;
};
const CONTROL = /(<(?:a|button|label|select)[ >][^>]*>[^<]*(?:<option[^>]*>[^<]*)*<\/\w+>|<[^>]*>)/;
const folded = (s, owner) => {
  const pieces = s.split(CONTROL), most = pieces.length > 1 ? 24 : 40;
  let left = 0;
  for (let i = 0; i < pieces.length; i += 2) {
    if (pieces[i].length < most + 16) continue;
    const cut = pieces[i].slice(0, most).replace(/\s+\S*$/, '') + '… ';
    left += pieces[i].length - cut.length;
    pieces[i] = cut;
  }
  return left < 60 || !owner ? s : `<p ${ga.number(owner)} +${left}>${pieces.join('').trimEnd()}`;
};

const LEGAL = /©|all rights reserved/i;
// A picture whose text is beside it anyway.
const pictured = (s, i) => {
  const alt = /^<img alt="?([^">]*)/.exec(s)?.[1].replace(/…$/, '');
  return alt !== undefined && [-2, -1, 1, 2].some(by => lines[i + by]?.replace(/^<img.*/, '').includes(alt));
};

// The lines as they are shown, and where each of `lines` went.
const size = out => out.reduce((n, s) => n + s.length + 1, 0);
const render = (level, apart) => {
  const out = [], place = [], seen = new Map(), fold = level.fold ? folding(40) : null;
  known = new Map();
  let run = false;
  const heads = fold && new Set(lines.filter(s => /^<h\d>/.test(s)).map(s => s.slice(4)));
  const met = new Set();
  lines.forEach((s, i) => {
    const menu = MENU.test(s);
    if (fold) {
      if (heads.has(s) || pictured(s, i)) { place.push(out.length); return; }
      if (s.length > 40 && !s.includes('<')) {
        if (met.has(s)) s = `〃 ${clip(s, 20)}`;
        else met.add(s);
      }
      if ((fold[i] || LEGAL.test(s)) && !menu && words(s).length >= PROSE && !s.includes('<pre>') && !/^<h\d/.test(s)) s = folded(s, owners[i]);
    }
    s = linked(s, menu, level, seen);
    if (!s || /^<h\d>$/.test(s) || s === '- ') { place.push(out.length); return; }
    if (menu && run && !apart[i] && !s.startsWith('<h')) out[out.length - 1] += ' ' + s.replace(/^- /, '');
    else out.push(s);
    place.push(out.length - 1);
    run = menu;
  });
  return {out: out.map(s => ranges(tidy(s))), place};
};

const asHtml = () => {
  const apart = new Uint8Array(lines.length), raw = size(lines), room = folding(40) ? 1 : 2; // where links count, they may cost more
  const part = some => { for (const {items} of some) for (const i of items) apart[i] = 1; };
  part(lists.filter(({items, end}) => end - items[0] > 1.5 * items.length)); // entries of several lines begin a line
  let done;
  for (const level of LEVELS) if (raw < 3 * LEVELS.at(-1).from || level === LEVELS.at(-1)) if (!done || size(done.out) > level.from * room) done = render(level, apart);
  if (args.max && size(done.out) > args.max && lists.length) { // long lists can be cut only where their items have lines
    part(lists);
    done = render(LEVELS.at(-1), apart);
  }
  return done;
};

const bare = s => plain(s.replace(/<\/(a|button)>(?=<(?:a|button) )/g, ' ').replace(/<input \d+ type=(?:checkbox|radio)[^>]*?( checked)?>/g, (_, checked) => checked ? '[x]' : '[ ]')
  .replace(/<(?:input|textarea) (?:[^>"]|"[^"]*")*?value=("[^"]*"|[^\s>]+)[^>]*>/g, '[$1]')
  .replace(/<option selected>([^<]*)/g, '[$1]').replace(/<option[^>]*>[^<]*/g, '').replace(/<[^>]*>/g, '')).trim();

const FOLD_TEXT = 3000, FEW = 2;
const asText = () => {
  const whole = lines.map(bare), fold = folding(80);
  const out = [], place = [];
  if (size(whole) < FOLD_TEXT || !fold) {
    for (const s of whole) { place.push(out.length); if (s && s !== '-') out.push(s); }
    return {out, place};
  }
  const reading = lines.map((s, i) => !fold[i] && words(s).length >= PROSE);
  const near = (i, by) => [1, 2, 3].some(k => reading[i + k * by]);
  let menu = [], aside = [], first = 0;
  const close = next => {
    const few = menu.slice(0, FEW).map(label => clip(label, 40)).join(' · ');
    if (menu.length > FEW + 2 && !(near(first, -1) && near(next - 1, 1))) out.push(notice('page_links', {count: menu.length, few}));
    else if (menu.length) out.push(menu.join(' · '));
    menu = [];
    const text = aside.join(' · ');
    if (text.length > 140) out.push(`${text.slice(0, 60).replace(/\s+\S*$/, '')}… [+${text.length - 60}]`);
    else if (text) out.push(text);
    aside = [];
  };
  lines.forEach((s, i) => {
    if (MENU.test(s)) {
      if (aside.length) close(i);
      if (!menu.length) first = i;
      for (const [, , label] of s.matchAll(/<(a|button) [^>]*>([^<]*)/g)) if (label.trim()) menu.push(plain(label.trim()));
      place.push(out.length);
      return;
    }
    const text = bare(s);
    if (!text || text === '-') { place.push(out.length); return; }
    if (fold[i] && !/^<(h\d|pre)/.test(s)) {
      if (menu.length) close(i);
      aside.push(text);
      place.push(out.length);
      return;
    }
    close(i);
    place.push(out.length);
    out.push(text);
  });
  close(lines.length);
  return {out, place};
};

// --- a dialog on top -----------------------------------------------------------------------------------------------

// The layer that keeps the user from the page: a modal dialog, or what one meets everywhere in the window above all that
// flows. A layer is something positioned; of a backdrop and a box over it, the box counts.
const layerOnTop = () => {
  const modal = [...document.querySelectorAll('dialog:modal')].at(-1);
  if (modal) return modal;
  const marked = document.elementFromPoint(innerWidth / 2, innerHeight / 2)?.closest('[aria-modal=true],[role=dialog],[role=alertdialog]');
  const met = layersAt(5);
  const ground = met && [...met].sort((a, b) => area(b) - area(a))[0];
  if (!ground || area(ground) < innerWidth * innerHeight * 0.9) return marked;
  if (squeeze(ground.innerText)) return ground;
  return [...layersAt(16) ?? met].filter(l => squeeze(l.innerText)).sort((a, b) => area(b) - area(a))[0] ?? marked;
};
// The layers at n × n points of the window; null when the page itself is met, or too much for dialogs.
const layersAt = n => {
  const met = new Set();
  for (let i = 0; i < n * n; i++) {
    const hit = document.elementFromPoint(innerWidth * (i % n + 0.5) / n, innerHeight * (Math.floor(i / n) + 0.5) / n);
    const layer = hit && layerOf(hit);
    if (!layer || met.size > 5) return null;
    met.add(layer);
  }
  return met;
};
const area = e => { const box = e.getBoundingClientRect(); return box.width * box.height; };
const layerOf = e => {
  for (; e && e !== document.body && e !== document.documentElement; e = e.parentElement ?? e.getRootNode().host) {
    const style = getComputedStyle(e);
    if (style.position === 'fixed' || style.position === 'absolute' && style.zIndex > 0) return e;
  }
  return null;
};

// --- scan ----------------------------------------------------------------------------------------------------------

const read = () => {
  const body = document.body ?? document.documentElement, top = PATH ? null : layerOnTop();
  if (top) {
    lines.push(notice('page_dialog'));
    owners.push(null);
    visit(top);
    brk();
    skipped = top;
    blocked = true;
    lines.push(notice('page_below'));
    owners.push(null);
  }
  const from = lines.length;
  visit(body);
  brk();
  if (top && lines.length === from) { // the layer is the page
    lines.pop(); owners.pop();
    lines[0] = '';
  }
};

const scan = () => {
  read();
  findHome();
  pairUp();
  const {out, place} = args.text ? asText() : asHtml();
  const at = i => i < place.length ? place[i] : out.length;
  let most = (args.start ?? 0) + (args.max || Infinity) + FAR, end = 0;
  while (end < out.length && most > 0) most -= out[end++].length + 1;
  const shown = lists.map(({items, end, rows}) => ({items: items.map(at), end: at(end), rows})).filter(l => l.end <= end);
  const inside = frames.map(f => ({...f, at: at(f.at)})).filter(f => f.at < end);
  const about = {path: PATH, id: ga.state.id, base: ga.state.base, kind: document.contentType, href: location.href, size: [innerWidth, innerHeight]};
  return {...about, lines: out.slice(0, end), lists: shown, frames: inside, home, unsent: size(out.slice(end))};
};
const FAR = 2e6; // characters that are sent beyond what was asked for: long lists may be left out

// --- what an action changes ----------------------------------------------------------------------------------------

const QUIET = 150, PATIENCE = 2500; // milliseconds without a change that is waited for, and in all
const HUGE = 40000; // elements from which on the page isn't read before and after, only listened to
const RESTLESS = 4; // changes after which an element counts as a ticker that never comes to rest
const TOLD = 60; // lines of each kind
const NOTED = 1000; // pieces of text that may have been shown for a moment, of one action
const WATCHED = {subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ['class', 'style', 'hidden', 'open']};

const begin = () => {
  ga.state.watch?.observer.disconnect();
  const watch = ga.state.watch = {noted: new Map(), last: performance.now(), turns: new WeakMap(), lines: null, owners, text: ''};
  if (document.getElementsByTagName('*').length < HUGE) {
    read();
    watch.lines = lines;
    watch.text = lines.map(bare).join('\n');
  }
  const observer = watch.observer = new MutationObserver(records => note(watch, records));
  const observe = root => {
    observer.observe(root, WATCHED);
    for (const e of root.querySelectorAll('*')) enter(e);
  };
  const enter = watch.enter = e => {
    const root = ga.shadowOf(e);
    if (root) observe(root);
    if (e.tagName === 'IFRAME') try { if (e.contentDocument?.body) observe(e.contentDocument); } catch { /* of another origin */ }
  };
  observe(document);
  return null;
};

// What is shown at this moment, as it may be gone before we look again.
const note = (watch, records) => {
  const changed = new Set();
  for (const {type, target, addedNodes} of records) {
    const turns = (watch.turns.get(target) ?? 0) + 1;
    watch.turns.set(target, turns);
    if (type !== 'attributes' && turns <= RESTLESS) watch.last = performance.now();
    if (type === 'childList') for (const node of addedNodes) {
      changed.add(node);
      if (node.nodeType === 1) { watch.enter(node); for (const e of node.querySelectorAll('*')) watch.enter(e); }
    }
    else if (turns <= RESTLESS * 4) changed.add(target);
  }
  if (watch.noted.size > NOTED) return; // a page that is filled anew: what stays is told at the end
  for (const node of [...changed].slice(0, NOTED)) {
    const e = node.nodeType === 1 ? node : node.parentElement ?? node.getRootNode().host;
    if (!e?.isConnected || !e.checkVisibility({visibilityProperty: true})) continue;
    const text = node.nodeType === 1 ? node.innerText ?? '' : node.data ?? '';
    for (const one of text.split('\n')) if (squeeze(one)) watch.noted.set(squeeze(one), true);
  }
};

const end = async () => {
  const watch = ga.state.watch, began = performance.now();
  if (!watch) return null;
  for (;;) {
    const now = performance.now(), rest = Math.min(QUIET - (now - Math.max(began, watch.last)), PATIENCE - (now - began));
    if (rest <= 0) break;
    await new Promise(resolve => setTimeout(resolve, rest));
  }
  note(watch, watch.observer.takeRecords());
  watch.observer.disconnect();
  ga.state.watch = null;
  if (!watch.lines) return told({appeared: [...watch.noted.keys()]});
  read();
  findHome();
  pairUp();
  home = '';
  const text = lines.map(bare).join('\n');
  const changes = difference(watch);
  changes.briefly = [...watch.noted.keys()].filter(t => !text.includes(t) && !watch.text.includes(t));
  return told(changes);
};

const difference = ({lines: old, owners: oldOwners}) => {
  const count = new Map();
  for (const s of old) count.set(s, (count.get(s) ?? 0) + 1);
  const fresh = [];
  lines.forEach((s, i) => { const n = count.get(s) ?? 0; if (n) count.set(s, n - 1); else fresh.push(i); });
  const gone = new Map(), vanished = [];
  old.forEach((s, i) => {
    const n = count.get(s) ?? 0;
    if (!n) return;
    count.set(s, n - 1);
    if (oldOwners[i] && !gone.has(oldOwners[i])) gone.set(oldOwners[i], s); else vanished.push(bare(s));
  });
  known = new Map();
  const shown = s => tidy(linked(s, false, LEVELS[0], new Map()));
  const appeared = [], changed = [];
  for (const i of fresh) {
    const was = gone.get(owners[i]);
    gone.delete(owners[i]);
    if (was === undefined) appeared.push(shown(lines[i]));
    else changed.push({from: bare(was) === bare(lines[i]) ? was.replace(/\u0001/g, '') : bare(was), to: shown(lines[i])});
  }
  return {appeared, changed, vanished: [...vanished, ...[...gone.values()].map(bare)].filter(Boolean)};
};

const told = changes => {
  let more = 0;
  for (const [key, all] of Object.entries(changes)) {
    more += Math.max(0, all.length - TOLD);
    changes[key] = all.slice(0, TOLD);
  }
  return {...changes, more};
};

switch (args.phase) {
  case 'begin': return begin();
  case 'end': return end();
  default: return scan();
}
