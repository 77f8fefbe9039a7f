// The debugger of one tab, attached for a call and let go soon after: it runs code whatever the page's policy is, answers
// dialogs, and tells of navigation and new tabs. While it is attached the browser shows its bar.

import { tick } from "./sharing.js";

const LINGER = 20_000; // ms that it stays after a call: the bar would flicker otherwise
const WHOLE = 2_000; // ms that a new page gets for its frames and images, when it can be worked with already
const ARRIVE = 5_000; // ms for new tabs
const MAX_DIALOGS = 50;

const pages = new Map(); // tab id → its attached debugger
const records = new Set(); // of the calls that run

export function failure(code, message) {
  return Object.assign(new Error(message), { code });
}

// `where`: a tab, or {tabId, sessionId} for a frame of it that has a process of its own.
export function cdp(where, method, params = {}) {
  return chrome.debugger.sendCommand(typeof where === "number" ? { tabId: where } : where, method, params);
}

// What one call has caused so far.
class Record {
  dialogs = [];
  opened = []; // URLs of windows that the page asked for
  tabs = new Map(); // those that came
  downloads = [];
  within = null; // URL after a change without a load
  navigated = null;
  left = false; // the document that the call began in is gone
  debugged = false;
  begun = false; // the code of the call, and it has let others run since
  ran = false; // it has: it must not be run again
  moved = deferred(); // the main frame has gone elsewhere, or will not
  loaded = deferred(); // the new document can be worked with
  whole = deferred(); // … with all that belongs to it
  leave = deferred(); // the document goes away
  stayed = deferred(); // the page asked before leaving, and that was declined
  ended = deferred(); // there is no tab any more, or nothing to wait for in it
  asked = false; // for a navigation
  late = false; // which did not come to its end

  constructor(tabId, { dialogs, timeout }) {
    this.tabId = tabId;
    this.policy = dialogs === "accept" ? { confirm: true, prompt: true, beforeunload: true } : (dialogs ?? {});
    this.deadline = Date.now() + timeout;
  }

  navigating() {
    if (this.asked && !this.left) return;
    this.asked = true;
    this.moved = deferred();
    this.loaded = deferred();
    this.whole = deferred();
  }

  committed(url, restored) {
    if (!this.asked) this.navigating();
    this.left = true;
    this.navigated = url;
    this.moved.resolve();
    if (restored) this.loaded.resolve(), this.whole.resolve();
    this.leave.resolve();
  }

  // `promise`, or `instead` when the document goes away under it.
  unlessLeft(promise, instead) {
    return Promise.race([promise.catch((error) => (this.left ? instead : Promise.reject(error))), this.leave.promise.then(() => instead)]);
  }

  async report() {
    const found = {};
    const tab = await chrome.tabs.get(this.tabId).catch(() => null);
    if (tab) found.url = tab.url || tab.pendingUrl;
    else found.closed = true;
    if (this.dialogs.length) found.dialogs = this.dialogs;
    if (this.navigated ?? this.within) found.navigated = this.navigated ? found.url ?? this.navigated : this.within;
    if (this.late) found.loading = true;
    if (this.downloads.length) found.downloads = this.downloads;
    const news = await Promise.all([...this.tabs.keys()].map((id) => chrome.tabs.get(id).catch(() => null)));
    if (news.length) found.new_tabs = news.map((t, i) => t ? { id: t.id, url: t.url || t.pendingUrl, title: t.title } : { id: [...this.tabs.keys()][i], closed: true });
    const blocked = this.opened.slice();
    for (const url of this.tabs.values()) blocked.splice(Math.max(0, blocked.indexOf(url)), 1);
    if (blocked.length) found.blocked_popups = blocked;
    return found;
  }
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Do `work(record)` in a tab; returns its result together with what happened meanwhile. `look`: without attaching the
// debugger for it; `must`: not without it.
export async function call(tabId, { dialogs, timeout = 10_000, look = false, must = false }, work) {
  const record = new Record(tabId, { dialogs, timeout });
  records.add(record);
  let page, timer, result;
  const limit = new Promise((_, reject) => {
    const hint = () => (page ? "" : ": a dialog may be open in the tab (answer it there), or its script is busy");
    timer = setTimeout(() => reject(failure("timeout", `not finished after ${timeout / 1000} s${hint()}`)), timeout);
  });
  try {
    const attached = look && !pages.has(tabId) ? null : attach(tabId, record).catch((error) => {
      if (must) throw noDebugger(error);
      result = { note: error.message };
    });
    page = await Promise.race([attached, limit]);
    record.debugged = Boolean(page);
    const run = () => Promise.race([work(record), record.ended.promise.then((why) => why ?? {}), limit]);
    const again = (error) => (page && LOCKED.test(error.message) ? withoutDebugger(page, record, must, error, run) : Promise.reject(error));
    result = { ...result, ...(await run().catch(again)) };
  } catch (error) {
    if (record.left && error.code !== "timeout") result = { ...result, type: "undefined", value: null, note: "the page was left before the code had ended" };
    else result = { ...result, error: error.code ?? "failed", message: error.message };
    if (error.code === "timeout" && record.debugged && (await stopRunaway(tabId, record))) result.message += ENDED;
  } finally {
    clearTimeout(timer);
    records.delete(record);
    for (const other of pages.values()) if (other.calls.delete(record)) rest(other);
  }
  return { tab: tabId, via: record.debugged ? "debugger" : "page", ...result, ...(await record.report()) };
}

const noDebugger = (error) => failure("no_debugger", `the browser does not let us debug this tab: ${error.message}`);

// A frame of another extension (a password manager) has come into the page: from now on the debugger is refused everything.
const LOCKED = /Cannot access a chrome-extension/;
async function withoutDebugger(page, record, must, error, run) {
  clearTimeout(page.linger);
  if (pages.get(page.tabId) === page) pages.delete(page.tabId);
  chrome.debugger.detach({ tabId: page.tabId }).catch(() => {}); // another call was faster
  record.debugged = false;
  if (must) throw noDebugger(error);
  if (record.ran) return { type: "undefined", value: null, note: `the code has run, but what it gave is not known: ${error.message}` };
  return { ...(await run()), note: error.message };
}

// A script that doesn't even let others run is ended: it would hold the tab for ever. Newer browsers don't let extensions end
// a script alone (seen with Chromium 156). There the page ends with it (true then), and what shares its process, where the
// page let others run after this call's code had begun, is still the same, and has answered nobody for longer: most likely
// what the code has set off holds it.
const ENDED = "; an endless script could only be ended together with its page: what was entered there is lost, the next call loads it anew";
async function stopRunaway(tabId, record) {
  const answers = cdp(tabId, "Runtime.evaluate", { expression: "0" }).then(() => true, () => true);
  if (await Promise.race([answers, sleep(500)])) return false;
  const refused = await cdp(tabId, "Runtime.terminateExecution").then(() => false, () => true);
  if (!refused || !record.begun || record.left || (await Promise.race([answers, sleep(1_000)]))) return false;
  cdp(tabId, "Page.crash").catch(() => {}); // it never answers
  await Promise.race([record.ended.promise, sleep(1_000)]);
  return true;
}

// Wait for what the call has set off: a navigation, new tabs.
export async function settle(record) {
  const until = (ms) => sleep(Math.max(0, Math.min(ms, record.deadline - Date.now() - 200)));
  if (record.asked) {
    const limit = until(Infinity).then(() => "late");
    const given = async () => {
      for (let idle = 0; idle < 3 && records.has(record); ) {
        await sleep(200);
        const tab = await chrome.tabs.get(record.tabId).catch(() => null);
        idle = tab?.status === "loading" || tab?.pendingUrl ? 0 : idle + 1;
      }
    };
    let how = await Promise.race([record.moved.promise, record.stayed.promise, given(), limit]);
    if (how !== "late" && record.left) how = await Promise.race([record.loaded.promise, given(), limit, record.ended.promise]);
    record.late = how === "late";
    if (record.left && !record.late) await Promise.race([record.whole.promise, given(), until(WHOLE), record.ended.promise]);
    record.asked = false;
  }
  for (let i = 0; i < 20 && record.opened.length > record.tabs.size && record.deadline - Date.now() > 300; i++) await sleep(50);
  const end = Math.min(Date.now() + ARRIVE, record.deadline - 200);
  for (const id of record.tabs.keys()) await arrived(id, end);
}

// The tab shows what it was opened for, or is gone, or it is too late (ms since the epoch).
export async function arrived(tabId, end) {
  while (Date.now() < end) {
    const tab = await chrome.tabs.get(tabId).catch(() => null);
    if (!tab || (tab.status === "complete" && !tab.pendingUrl)) return;
    await sleep(30);
  }
}

// The debugger of a tab, for a call: its dialogs are answered from now on, also one that keeps us from coming further.
async function attach(tabId, record) {
  let page = pages.get(tabId);
  if (!page) {
    page = { tabId, calls: new Set(), sessions: new Set(), dialog: null, linger: 0, main: null };
    pages.set(tabId, page);
    page.ready = start(page);
  }
  clearTimeout(page.linger);
  page.calls.add(record);
  if (page.dialog) answerDialog(page, record);
  try {
    await page.ready;
  } catch (error) {
    if (pages.get(tabId) === page) pages.delete(tabId);
    throw error;
  }
  return page;
}

async function start(page) {
  const { tabId } = page;
  const target = { tabId };
  try {
    await chrome.debugger.attach(target, "1.3");
  } catch (error) {
    if (!/already attached/i.test(error.message)) throw error;
    await chrome.debugger.detach(target).catch(() => {}); // ours, from before this worker was restarted
    await chrome.debugger.attach(target, "1.3");
  }
  const enabled = (async () => {
    await cdp(tabId, "Page.enable");
    page.main ??= (await cdp(tabId, "Page.getFrameTree")).frameTree.frame.id;
    return true;
  })();
  cdp(tabId, "Emulation.setFocusEmulationEnabled", { enabled: true }).catch(() => {}); // else no focus events behind other windows
  if (await Promise.race([enabled, sleep(3_000)])) return;
  chrome.debugger.detach(target).catch(() => {}); // it may be gone
  throw new Error("the page does not answer: a dialog may be open in the tab (answer it there), or its script is in an endless loop");
}

// No call runs in it now.
function rest(page) {
  clearTimeout(page.linger);
  if (!page.calls.size) page.linger = setTimeout(detach, LINGER, page);
}

async function detach(page) {
  const { tabId } = page;
  if (pages.get(tabId) !== page || page.calls.size || page.dialog) return; // a dialog that we let go we could never answer
  pages.delete(tabId);
  await chrome.debugger.detach({ tabId }).catch(() => {}); // the tab may be gone
}

// {where, contextId} of the page's own world in a frame, for Runtime.evaluate. Frames have other names in the debugger, so
// we mark our own world in the frame, and look where the mark is.
export async function worldOf(tabId, frame) {
  const mark = crypto.randomUUID();
  await chrome.scripting.executeScript({ target: { tabId, frameIds: [frame] }, injectImmediately: true, func: (text) => (globalThis.gaMark = text), args: [mark] });
  const page = pages.get(tabId);
  const enabled = new Map(); // session → how to reach it
  const worlds = [];
  page.onWorld = (source, context) => worlds.push({ where: { ...source }, ...context });
  try {
    for (let turn = 0; turn < 10; turn++) { // events come when they come, not before the answer they belong to
      for (const sessionId of [undefined, ...page.sessions]) {
        if (enabled.has(sessionId)) continue;
        const place = sessionId ? { tabId, sessionId } : { tabId };
        enabled.set(sessionId, place);
        await cdp(place, "Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: false, flatten: true });
        await cdp(place, "Runtime.enable");
      }
      for (const { where, id, auxData } of worlds.filter((world) => world.origin === `chrome-extension://${chrome.runtime.id}`)) {
        const { result } = await cdp(where, "Runtime.evaluate", { expression: "globalThis.gaMark", contextId: id, returnByValue: true });
        const main = worlds.find((world) => world.auxData?.isDefault && world.auxData.frameId === auxData.frameId);
        if (result.value === mark && main) return { where: main.where, contextId: main.id };
      }
      await sleep(10);
    }
    throw failure("failed", `frame ${frame} is not reachable by the debugger`);
  } finally {
    page.onWorld = null;
    for (const place of enabled.values()) await cdp(place, "Runtime.disable").catch(() => {}); // the frame may be gone
  }
}

// An alert is acknowledged. What asks for a decision is declined, unless the call says otherwise.
async function answerDialog(page, record) {
  const { type, message, defaultPrompt, url } = page.dialog;
  page.dialog = null;
  const wish = record.policy[type];
  const accept = type === "alert" || (wish !== undefined && wish !== null && wish !== false);
  const promptText = typeof wish === "string" ? wish : (defaultPrompt ?? "");
  if (record.dialogs.length < MAX_DIALOGS) {
    record.dialogs.push({ type, message, accepted: accept, ...(type === "prompt" ? { default: defaultPrompt, answer: accept ? promptText : null } : {}), ...(page.tabId === record.tabId ? {} : { tab: page.tabId }), url });
  }
  await cdp(page.tabId, "Page.handleJavaScriptDialog", { accept, promptText }).catch(() => {}); // the user was faster
  if (type === "beforeunload" && !accept) record.stayed.resolve();
}

const EVENTS = {
  "Page.javascriptDialogOpening"(page, dialog) {
    page.dialog = dialog;
    const record = [...page.calls].at(-1);
    if (record) answerDialog(page, record); // with no call running it is the user's
  },
  "Page.javascriptDialogClosed"(page) {
    page.dialog = null;
    rest(page);
  },
  "Page.windowOpen"(page, { url }, own) {
    for (const record of own) record.opened.push(url || "about:blank");
  },
  "Page.frameRequestedNavigation"(page, { frameId, url, disposition }, own) {
    for (const record of own) {
      if (disposition !== "currentTab" && disposition !== "download") record.opened.push(url);
      else if (frameId === page.main) record.navigating();
    }
  },
  "Page.frameStartedNavigating"(page, { frameId, navigationType }, own) {
    if (frameId === page.main && !/sameDocument/i.test(navigationType ?? "")) for (const record of own) record.navigating();
  },
  "Page.frameNavigated"(page, { frame, type }, own) {
    if (frame.parentId) return;
    page.main = frame.id;
    for (const record of own) record.committed(frame.url, type === "BackForwardCacheRestore");
  },
  "Page.navigatedWithinDocument"(page, { frameId, url }, own) {
    if (frameId === page.main) for (const record of own) (record.within = url), record.moved.resolve();
  },
  "Page.domContentEventFired"(page, _, own) {
    for (const record of own) record.loaded.resolve();
  },
  "Page.loadEventFired"(page, _, own) {
    for (const record of own) record.whole.resolve();
  },
  "Page.downloadWillBegin"(page, { url, suggestedFilename }, own) {
    for (const record of own) record.downloads.push({ url, file: suggestedFilename }), record.moved.resolve();
  },
  "Inspector.targetCrashed"(page, _, own) {
    for (const record of own) record.ended.resolve({ error: "crashed", message: "the page has crashed" });
  },
};

chrome.debugger.onEvent.addListener((source, method, params) => {
  const page = pages.get(source.tabId);
  if (!page) return;
  if (method === "Target.attachedToTarget" && params.targetInfo.type === "iframe") page.sessions.add(params.sessionId);
  if (method === "Target.detachedFromTarget") page.sessions.delete(params.sessionId);
  if (method === "Runtime.executionContextCreated") page.onWorld?.(source, params.context);
  if (source.sessionId || !Object.hasOwn(EVENTS, method)) return;
  EVENTS[method](page, params ?? {}, [...page.calls].filter((record) => record.tabId === page.tabId));
});

chrome.debugger.onDetach.addListener(async (source, reason) => {
  const page = pages.get(source.tabId);
  if (!page) return;
  pages.delete(source.tabId);
  if (reason === "canceled_by_user") await chrome.storage.local.set({ paused: true }); // the bar's button says: stop
  for (const record of page.calls) {
    if (record.tabId !== page.tabId) continue;
    record.onClosed?.();
    record.ended.resolve(reason === "canceled_by_user" ? { error: "stopped", message: "the user has stopped the agent in the browser's bar" } : {});
  }
});

chrome.tabs.onRemoved.addListener((tabId) => {
  for (const record of records) if (record.tabId === tabId) record.onClosed?.(), record.ended.resolve({});
});

// A tab that a call has opened: shared like the one it came from, and its dialogs are the call's.
chrome.tabs.onCreated.addListener(async (tab) => {
  const url = tab.pendingUrl || tab.url || "about:blank";
  if (/^chrome:/.test(url)) return; // the user's own new tab
  // a page has said that it opens one; else the "opener", which is the tab in front where that is another
  const running = [...records];
  const cause = running.find((record) => record.opened.length > record.tabs.size) ?? running.find((record) => record.tabId === tab.openerTabId);
  if (!cause) return;
  cause.tabs.set(tab.id, url);
  if (cause.debugged) attach(tab.id, cause).catch(() => {}); // without it its dialogs are left to the user
  await tick(tab.id, true);
});
