"use strict";
// Nothing here parses HTML: messages become nodes one by one, from the few tags that genericagent/faces/markup.py writes.

const $ = (id) => document.getElementById(id);
const TAGS = new Set(["b", "i", "s", "code", "pre", "a", "blockquote"]);
const SIGNS = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };
const TOKEN = /<(\/?)([a-z]+)([^<>]*)>|&(amp|lt|gt|quot|#x27);|[^<&]+|[<&]/g;
const LINK = /^(https?|mailto|tg):/i;
const shown = new Map(); // id → list item
const pictures = new Map(); // id → blob: address
let texts = {}, chosen = [], token = "", connection = 0, over = false;
let atEnd = true, seenTop = 0; // what comes is followed

function element(name, props = {}, ...children) {
  const node = Object.assign(document.createElement(name), props);
  node.append(...children);
  return node;
}

function build(html) {
  const root = document.createDocumentFragment(), open = [root];
  for (const [whole, closing, name, rest, sign] of html.matchAll(TOKEN)) {
    const top = open.at(-1);
    if (!TAGS.has(name)) top.append(sign ? SIGNS[sign] : whole);
    else if (closing) {
      if (top.localName === name) open.pop();
    } else {
      const node = element(name);
      const href = (/^ href="([^"]*)"$/.exec(rest)?.[1] ?? "").replace(/&(amp|lt|gt|quot|#x27);/g, (_, s) => SIGNS[s]);
      if (name === "a" && LINK.test(href)) Object.assign(node, { href, target: "_blank", rel: "noopener noreferrer" });
      top.append(node);
      open.push(node);
    }
  }
  return root;
}

// what the page asks for

async function ask(path, body) {
  const answer = await fetch(path, {
    method: body ? "POST" : "GET", body, headers: { Authorization: `Bearer ${token}` }, cache: "no-store",
  });
  if (!answer.ok) throw Object.assign(new Error(await answer.text()), { status: answer.status });
  return answer;
}

function note(text) {
  $("note").textContent = text;
  $("note").hidden = !text;
}

function failed(error) {
  note({ 401: texts.no_token, 404: texts.no_file, 413: texts.too_large }[error.status] ?? `${texts.failed} ${error.message}`);
}

function fields(values) {
  const form = new FormData();
  for (const [name, value] of values) form.append(name, value);
  return form;
}

async function say(text, files = []) {
  atEnd = true;
  if (over) follow(); // this page was put aside for others
  try {
    await ask("/send", fields([["text", text], ...files.map((file) => ["file", file])]));
    note("");
    return true;
  } catch (error) {
    failed(error);
    return false;
  }
}

async function press(message, data) {
  try {
    note(await (await ask("/press", fields([["message", message], ["data", data]]))).text());
  } catch (error) {
    failed(error);
  }
  $("text").focus();
}

const blob = async (id) => URL.createObjectURL(await (await ask(`/file/${id}`)).blob());

async function download(id, name) {
  try {
    const href = await blob(id);
    element("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  } catch (error) {
    failed(error);
  }
}

async function picture(id, image) {
  try {
    if (!pictures.has(id)) pictures.set(id, blob(id));
    image.src = await pictures.get(id);
  } catch {
    image.remove(); // the button beside it says what is wrong
  }
}

// what it shows

function show(message) {
  if (message.gone) {
    shown.get(message.id)?.remove();
    shown.delete(message.id);
    return;
  }
  if (!shown.has(message.id)) {
    shown.set(message.id, element("li"));
    $("log").append(shown.get(message.id));
  }
  const item = shown.get(message.id);
  item.className = message.mine ? "mine" : message.buttons?.length ? "asks" : "";
  item.replaceChildren(build(message.html ?? ""));
  if (message.image) {
    const image = element("img", { alt: message.file, onload: toEnd });
    item.append(image);
    picture(message.id, image);
  }
  if (message.file) {
    item.append(element("button", { type: "button", onclick: () => download(message.id, message.file) }, `⬇ ${message.file}`));
  }
  for (const row of message.buttons ?? []) {
    item.append(element("div", { className: "row" },
      ...row.map(([label, data]) => element("button", { type: "button", onclick: () => press(message.id, data) }, label))));
  }
}

function scrolled() {
  const { scrollHeight, scrollTop, clientHeight } = $("log");
  if (scrollHeight - scrollTop - clientHeight < 80) atEnd = true;
  else if (scrollTop < seenTop) atEnd = false; // upwards it is the user: what comes below moves nothing
  seenTop = scrollTop;
}

function toEnd() {
  if (atEnd) $("log").scrollTop = $("log").scrollHeight;
}

function take({ all, news, over: others }) {
  const log = $("log");
  if (others) {
    connection++;
    over = true;
    return note(texts.over);
  }
  if (all) {
    log.replaceChildren();
    shown.clear();
    pictures.clear(); // a program that was started anew begins with the same numbers
  }
  (all ?? news).forEach(show);
  const asks = [...shown.values()].some((item) => item.classList.contains("asks"));
  document.title = asks ? "● GenericAgent" : "GenericAgent";
  atEnd ||= Boolean(all);
  toEnd();
}

async function follow() {
  const mine = ++connection;
  over = false;
  while (mine === connection) {
    try {
      const reader = (await ask("/events")).body.pipeThrough(new TextDecoderStream()).getReader();
      note("");
      let rest = "";
      for (let chunk = await reader.read(); !chunk.done && mine === connection; chunk = await reader.read()) {
        const events = (rest + chunk.value).split("\n\n");
        rest = events.pop();
        for (const event of events) if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
      }
      reader.cancel();
    } catch (error) {
      if (error.status) return failed(error);
    }
    if (mine !== connection) return;
    note(texts.lost);
    await new Promise((done) => setTimeout(done, 1000));
  }
}

async function lists() {
  const panel = $("panel");
  panel.hidden = !panel.hidden;
  $("menu").setAttribute("aria-expanded", String(!panel.hidden));
  for (const list of ["sessions", "commands"]) $(list).replaceChildren(); // old rows would move away below the pointer
  if (panel.hidden) return;
  try {
    const { sessions, commands } = await (await ask("/lists")).json();
    $("sessions").replaceChildren(...sessions.map(({ id, age, title, now }) => {
      const button = element("button", { type: "button", onclick: () => (lists(), say(`/resume ${id}`)) },
        title || id, " ", element("small", {}, age));
      if (now) button.setAttribute("aria-current", "true");
      return element("li", {}, button);
    }));
    $("commands").replaceChildren(...commands.map(([name, about]) =>
      element("li", {}, element("button", { type: "button", onclick: () => (lists(), write(`/${name} `)) },
        `/${name} `, element("small", {}, about)))));
  } catch (error) {
    failed(error);
  }
}

// what the user does

function write(text) {
  $("text").value = text;
  $("text").focus();
}

function choose(files) {
  chosen.push(...files);
  $("chosen").replaceChildren(...chosen.map((file, n) =>
    element("li", {}, element("button", { type: "button", title: texts.remove, onclick: () => (chosen.splice(n, 1), choose([])) },
      `📎 ${file.name} ✕`))));
}

async function submit(event) {
  event?.preventDefault();
  const text = $("text").value, files = chosen;
  if (!text.trim() && !files.length) return;
  write("");
  chosen = [];
  choose([]);
  if (!(await say(text, files))) {
    if (!$("text").value) write(text);
    choose(files);
  }
}

function enter() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", "/");
  }
  token = sessionStorage.getItem("token") ?? "";
}

async function start() {
  enter();
  const on = (node, event, work) => node.addEventListener(event, work); // unlike on…=, a false does not cancel the event
  on($("form"), "submit", submit);
  on($("menu"), "click", lists);
  on($("stop"), "click", () => say("/stop"));
  on($("attach"), "click", () => $("files").click());
  on($("files"), "change", () => (choose($("files").files), ($("files").value = "")));
  on($("text"), "keydown", (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event));
  on($("text"), "paste", (event) => event.clipboardData.files.length && (event.preventDefault(), choose(event.clipboardData.files)));
  on(document, "dragover", (event) => event.preventDefault());
  on(document, "drop", (event) => (event.preventDefault(), choose(event.dataTransfer.files)));
  on(document, "keydown", (event) => event.key === "Escape" && !$("panel").hidden && lists());
  on($("log"), "scroll", scrolled);
  new ResizeObserver(toEnd).observe($("log"));
  on(window, "hashchange", () => (enter(), follow()));
  texts = await (await fetch("/texts.json")).json();
  document.documentElement.lang = texts.lang;
  for (const node of document.querySelectorAll("[data-text]")) node.textContent = texts[node.dataset.text];
  for (const node of document.querySelectorAll("[data-label]")) node.placeholder = node.ariaLabel = texts[node.dataset.label];
  follow();
}

start();
