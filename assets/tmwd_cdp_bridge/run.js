// Code in pages. What the agent wrote runs in the page's own world, like in the console; page scripts, which come with this
// extension, run in a world of their own where the page can't disturb them.

import { cdp, failure, sleep, worldOf } from "./debug.js";

const LEADS_ELSEWHERE =
  /\b(click|submit|requestSubmit|dispatchEvent|open|close|navigate|assign|reload)\s*\(|\bhistory\s*\.|\blocation\s*(\.\s*\w+\s*)?=[^=]|\blocation\s*\.\s*replace/;
const SOON = 60; // ms in which a click or the like shows whether it leads elsewhere

// In the page, so it can use nothing from outside. describe(value): {type, value} in JSON, the kind kept.
// With `code` given, runs that first: only used where there is no debugger.
function inPage(value, code) {
  const MAX_NODE = 2_000, MAX_DEPTH = 60, MAX_ITEMS = 1_000_000;
  let items = 0;
  const clip = (text, most) => (text.length > most ? `${text.slice(0, most)}… [${text.length} characters]` : text);
  const tag = (v) => {
    try { return Object.prototype.toString.call(v).slice(8, -1); } catch { return "Object"; }
  };
  const isWindow = (v) => {
    try { return v.window === v && v.self === v; } catch { return false; }
  };
  const isNode = (v) => typeof Node === "function" && v instanceof Node || (typeof v.nodeType === "number" && typeof v.nodeName === "string" && typeof v.ownerDocument !== "undefined");
  function node(v) {
    if (v.nodeType === 9) return `[document ${v.URL}]`;
    if (v.nodeType === 1) return clip(v.outerHTML ?? v.nodeName, MAX_NODE);
    if (v.nodeType === 11) return clip(`[fragment] ${Array.from(v.childNodes, node).join("")}`, MAX_NODE);
    return clip(v.nodeValue ?? v.nodeName, MAX_NODE);
  }
  function kind(v) {
    if (v === null) return "null";
    if (typeof v !== "object") return typeof v;
    if (isWindow(v)) return "window";
    if (isNode(v)) return "node";
    if (Array.isArray(v)) return "array";
    if (v instanceof Error) return "error";
    const t = tag(v);
    return { Date: "date", Map: "map", Set: "set", RegExp: "regexp", Promise: "promise", Error: "error", DOMException: "error" }[t] ?? "object";
  }
  function plain(v, path) {
    switch (typeof v) {
      case "undefined": return null;
      case "number": return Number.isFinite(v) && !Object.is(v, -0) ? v : Object.is(v, -0) ? "-0" : String(v);
      case "bigint": return `${v}n`;
      case "symbol": return String(v);
      case "function": return clip(Function.prototype.toString.call(v), MAX_NODE);
      case "object": break;
      default: return v;
    }
    if (v === null) return null;
    if (path.includes(v)) return "[circular]";
    if (path.length >= MAX_DEPTH) return "[deeper]";
    if (++items > MAX_ITEMS) return "[more]";
    try {
      return object(v, kind(v), [...path, v]);
    } catch (error) {
      return `[not readable: ${error}]`;
    }
  }
  function object(v, k, path) {
    if (k === "window") {
      let where = "of another origin";
      try { where = v.location.href; } catch {}
      return `[window ${where}]`;
    }
    if (k === "node") return node(v);
    if (k === "error") return clip(v.stack && String(v.stack).includes(v.message) ? String(v.stack) : String(v), MAX_NODE);
    if (k === "date") return Number.isNaN(v.getTime()) ? "Invalid Date" : v.toISOString();
    if (k === "regexp" || k === "promise") return k === "regexp" ? String(v) : "[promise]";
    if (k === "map") return Array.from(v, ([key, one]) => [plain(key, path), plain(one, path)]);
    const listed = k === "array" || k === "set" || ArrayBuffer.isView(v) && !(v instanceof DataView) || /^(NodeList|HTMLCollection|HTMLOptionsCollection|RadioNodeList|DOMTokenList|FileList|NamedNodeMap|StyleSheetList|DOMRectList)$/.test(tag(v));
    if (listed) return Array.from(v, (one) => plain(one, path));
    if (v instanceof ArrayBuffer) return `[ArrayBuffer of ${v.byteLength} bytes]`;
    if (typeof v.toJSON === "function") return plain(v.toJSON(), path);
    const out = {};
    let keys = Object.keys(v);
    const proto = Object.getPrototypeOf(v);
    if (!keys.length && proto && Object.getPrototypeOf(proto)) {
      if (proto.toString !== Object.prototype.toString && String(v) !== `[object ${tag(v)}]`) return String(v);
      for (const key in v) if (typeof v[key] !== "function") keys.push(key); // an object of the browser: all is in its prototype
    }
    for (const key of keys) {
      let one;
      try { one = v[key]; } catch (error) { one = `[not readable: ${error}]`; }
      if (one !== undefined) Object.defineProperty(out, key, { value: plain(one, path), enumerable: true, configurable: true, writable: true });
    }
    return out;
  }
  const describe = (v) => ({ type: kind(v), value: plain(v, []) });
  if (code === undefined) return describe(value);

  const AsyncFunction = (async () => {}).constructor;
  let run;
  try {
    run = new AsyncFunction(`return (${code}\n)`);
  } catch (error) {
    if (error.name === "EvalError" || !(error instanceof SyntaxError)) return { error: "policy", message: String(error) };
    let body = true;
    try { new Function(code); } catch { body = false; }
    try {
      run = body && !/\breturn\b/.test(code) ? async () => (0, eval)(`{${code}\n}`) : new AsyncFunction(code);
    } catch (wrong) {
      return { error: "exception", message: String(wrong) };
    }
  }
  return run().then(describe, (error) => ({ error: "exception", message: error instanceof Error ? String(error) : describe(error).value }));
}

// Through the debugger: like a line in the console, and a `return` works too. A block keeps what it declares to itself.
export async function evaluate(tabId, frame, code, record, wait) {
  const { where, contextId } = frame ? await worldOf(tabId, frame) : { where: tabId };
  const how = { contextId, objectGroup: "ga", awaitPromise: true, userGesture: true, timeout: Math.max(1, record.deadline - Date.now()) };
  const run = (expression, more) => cdp(where, "Runtime.evaluate", { ...how, ...more, expression });
  try {
    const bare = code.trim().replace(/;$/, "");
    // a function that nobody calls: is the whole an object, not a block?
    const object = bare.startsWith("{") && bare.endsWith("}") && !(await run(`async()=>(${bare}\n)`)).exceptionDetails;
    const first = run(object ? `(${bare}\n)` : `{${code}\n}`, { replMode: true });
    if (where === tabId) cdp(where, "Runtime.evaluate", { expression: "0" }).then(() => (record.begun = true), () => {}); // answered once it waits for something
    let done = await first;
    record.ran = true;
    if (isReturn(done)) done = await run(`(async () => {${code}\n})()`);
    if (done.result?.subtype === "promise") done = await cdp(where, "Runtime.awaitPromise", { promiseObjectId: done.result.objectId });
    if (done.exceptionDetails) return exception(done.exceptionDetails);
    const value = await described(where, done.result);
    if (wait && LEADS_ELSEWHERE.test(code)) await Promise.race([sleep(SOON), record.moved.promise, record.ended.promise]);
    return value;
  } catch (error) {
    if (!/navigated or closed|context was destroyed|Cannot find context|collected|Target closed|not attached|Detached|session/i.test(error.message)) throw error;
    await Promise.race([record.leave.promise, record.ended.promise, sleep(1_000)]);
    return { type: "undefined", value: null, note: "the page was left before the code had ended" };
  } finally {
    cdp(where, "Runtime.releaseObjectGroup", { objectGroup: "ga" }).catch(() => {}); // the page may be gone
  }
}

// Refused when compiled, so nothing has run yet: what the code throws itself has a place in the code.
function isReturn({ exceptionDetails: wrong }) {
  return wrong?.text === "Uncaught" && wrong.exception?.description === "SyntaxError: Illegal return statement";
}

function exception({ exception: thrown, text, lineNumber }) {
  if (!thrown && /terminated/i.test(text)) return { error: "timeout", message: "not finished in time: the script was ended" };
  const message = thrown?.description ?? (thrown ? `Uncaught ${JSON.stringify(thrown.value)}` : text);
  return { error: "exception", message: message.split("\n    at ")[0], line: lineNumber + 1 };
}

async function described(where, result) {
  if (result.type === "undefined") return { type: "undefined", value: null };
  if (result.unserializableValue) return { type: result.type, value: result.unserializableValue };
  if (!result.objectId) return { type: result.subtype === "null" ? "null" : result.type, value: result.value ?? null };
  const functionDeclaration = `function () { "use strict"; return (${inPage})(this); }`;
  const done = await cdp(where, "Runtime.callFunctionOn", { objectId: result.objectId, functionDeclaration, returnByValue: true });
  return done.exceptionDetails ? { type: result.type, value: result.description ?? "" } : done.result.value;
}

// Without the debugger: the page's policy counts, and there is no user gesture.
export async function inFrame(tabId, frame, code) {
  const [done] = await inject({ target: { tabId, frameIds: [frame] }, world: "MAIN", func: inPage, args: [null, code] });
  if (done.result?.error === "policy") throw failure("policy", `this page's policy forbids running text as code, and the debugger can't be used here: ${done.result.message}`);
  return done.result ?? { type: "undefined", value: null };
}

// Run a page script in its own world, in the top frame or all: [{frame, value} | {frame, error}]. The agent's program puts
// its page scripts into this extension's folder, each under its hash: a new version of one needs no reload.
export async function inPages(tabId, file, args, allFrames) {
  const run = (target) => inject({ target, func: runPageScript, args: [file, args] });
  const load = async (frameId) => { // each frame for itself: one that is just being left keeps us from none but itself
    const target = { tabId, frameIds: [frameId] };
    try {
      await inject({ target, files: [`page/${file}.js`] });
      return (await run(target))[0];
    } catch (error) {
      if (error.code === "missing") throw error;
      return { frameId, result: { error: error.message } };
    }
  };
  let found;
  try { // one that is just becoming one of another extension (a PDF does) does keep us from all
    found = await run({ tabId, allFrames }).catch((error) => (allFrames ? run({ tabId }) : Promise.reject(error)));
  } catch (error) {
    return [{ frame: 0, error: error.message }];
  }
  return Promise.all(found.map(async (one) => outcome(one.result?.missing ? await load(one.frameId) : one)));
}

async function runPageScript(file, args) {
  const script = globalThis.gaPage?.[file];
  if (!script) return { missing: true };
  if (document.readyState === "loading") {
    await new Promise((resolve) => {
      document.addEventListener("DOMContentLoaded", resolve, { once: true });
      setTimeout(resolve, 3_000);
    });
  }
  try {
    return { value: await script(args) };
  } catch (error) {
    return { error: String(error?.stack ?? error) };
  }
}

function outcome({ frameId, result }) {
  return { frame: frameId, ...(!result || result.missing ? { error: "the frame went away" } : result) };
}

async function inject(what) {
  try {
    return await chrome.scripting.executeScript({ injectImmediately: true, ...what });
  } catch (error) {
    const code = /Could not load file/.test(error.message) ? "missing" : "refused";
    throw failure(code, `the browser does not let us into this page: ${error.message}`);
  }
}
