// The calls that the agent may make. Each names its tab: there is no "current" tab here that two agents could mix up.

import { evaluate, inFrame, inPages } from "./run.js";
import { arrived, call, cdp, failure, settle, sleep } from "./debug.js";
import { currentId, formerIds, sharedTabs, tick } from "./sharing.js";

const CALLS = { tabs, create, close, activate, js, page, jump, cdp: rawCdp, cookies, screenshot };

export async function answer(request) {
  const run = Object.hasOwn(CALLS, request.do) ? CALLS[request.do] : null;
  if (!run) throw failure("unknown", `this extension (${chrome.runtime.getManifest().version}) has no call "${request.do}": run \`ga browser setup\` and reload it`);
  return run("tab" in request ? { ...request, tab: await currentId(request.tab) } : request);
}

export function about(tab) {
  return { id: tab.id, url: tab.url || tab.pendingUrl || "", title: tab.title ?? "", active: tab.active, window: tab.windowId, loading: tab.status === "loading", used: tab.lastAccessed ?? 0 };
}

async function tabs() {
  const [all, isShared, last, was] = await Promise.all([chrome.tabs.query({}), sharedTabs(), chrome.windows.getLastFocused().catch(() => null), formerIds()]);
  return { tabs: all.filter(isShared).map((tab) => ({ ...about(tab), was: was[tab.id] ?? [], focused: tab.active && tab.windowId === last?.id })) };
}

async function theTab(id) {
  const tab = await chrome.tabs.get(id).catch(() => null);
  if (!tab) throw failure("gone", `tab ${id} is closed`);
  if (tab.discarded || tab.status === "unloaded") { // the browser has put it to sleep
    await chrome.tabs.reload(id);
    await arrived(id, Date.now() + 10_000);
  }
  if (!(await sharedTabs())(tab)) throw failure("not_shared", `tab ${id} is not shared with the agent, or it shows a page of the browser itself`);
  return tab;
}

// What the agent was allowed, it was allowed on the site where the tab was then.
async function still(tab, at, frame = 0) {
  if (at === undefined) return;
  let here = await chrome.tabs.get(tab).then((t) => t.url || t.pendingUrl || "", () => "");
  if (frame) here = (await chrome.scripting.executeScript({ target: { tabId: tab, frameIds: [frame] }, func: () => location.href }).catch(() => []))[0]?.result ?? "";
  if (siteOf(here) !== siteOf(at)) throw failure("moved", "the tab has gone to another site since this was asked for, and nothing was done: look again");
}

function siteOf(url) {
  const { origin, protocol } = URL.canParse(url) ? new URL(url) : { origin: "", protocol: "" };
  return origin === "null" ? protocol : origin;
}

async function create({ url, active = true, timeout, dialogs }) {
  const windows = await chrome.windows.getAll({ windowTypes: ["normal"] });
  const open = windows.some((window) => !window.incognito);
  const tab = open ? await chrome.tabs.create({ url: "about:blank", active }) : (await chrome.windows.create({ url: "about:blank" })).tabs[0];
  await tick(tab.id, true);
  if (!url || url === "about:blank") return { tab: tab.id, url: "about:blank" };
  return jump({ tab: tab.id, url, timeout, dialogs });
}

async function close({ tab, dialogs, at }) {
  await theTab(tab);
  await still(tab, at);
  return call(tab, { dialogs, timeout: 5_000 }, async (record) => {
    const closed = new Promise((resolve) => {
      record.onClosed = resolve;
      record.stayed.promise.then(resolve);
      setTimeout(resolve, 3_000);
    });
    if (record.debugged) cdp(tab, "Page.close").catch(() => chrome.tabs.remove(tab)).catch(() => {}); // asks the page, as a click on the x does
    else await chrome.tabs.remove(tab);
    await closed;
    const gone = !(await chrome.tabs.get(tab).catch(() => null));
    return gone ? { value: true, type: "boolean" } : { error: "stayed", message: "the page asked to stay (beforeunload) and was not overruled" };
  });
}

async function activate({ tab }) {
  const { windowId } = await theTab(tab);
  await chrome.tabs.update(tab, { active: true });
  await chrome.windows.update(windowId, { focused: true });
  return { tab };
}

// Run code of the agent in the page; `around`: a page script before and after it, in the same call.
async function js({ tab, code, timeout, dialogs, frame = 0, frame_url, around, args, at }) {
  await theTab(tab);
  return call(tab, { dialogs, timeout }, async (record) => {
    const look = (phase) => inPages(tab, around, { ...args, phase }, true);
    const blind = around && (await look("begin")).find((one) => one.frame === 0 && one.error);
    await still(tab, frame ? frame_url || undefined : at, frame);
    const result = record.debugged ? await evaluate(tab, frame, code, record, !around || blind) : await inFrame(tab, frame, code);
    await settle(record);
    if (blind) {
      if (!record.left) result.note ??= `what changed was not watched: ${blind.error}`;
      result.around = [];
    } else if (around) {
      result.around = record.left ? [] : await record.unlessLeft(look("end"), []);
      await settle(record);
    }
    return result;
  });
}

// Run a page script: only looks, so no debugger and no bar in the browser unless it is there already.
async function page({ tab, file, args, timeout, dialogs, all_frames = true, at }) {
  const { title } = await theTab(tab);
  return call(tab, { dialogs, timeout, look: true }, async () => (await still(tab, at), { title, frames: await inPages(tab, file, args ?? {}, all_frames) }));
}

async function jump({ tab, url, timeout, dialogs }) {
  await theTab(tab);
  return call(tab, { dialogs, timeout }, async (record) => {
    if (!record.debugged) {
      record.navigating();
      await chrome.tabs.update(tab, { url });
    } else {
      record.navigating();
      const { errorText } = await cdp(tab, "Page.navigate", { url });
      if (errorText && !record.downloads.length) {
        if (errorText !== "net::ERR_ABORTED") { // its error page
          await settle(record);
          await arrived(tab, record.deadline - 200);
        }
        const stayed = record.dialogs.some((dialog) => dialog.type === "beforeunload" && !dialog.accepted);
        return { error: stayed ? "stayed" : "not_opened", message: stayed ? "the page asked to stay (beforeunload) and was not overruled: nothing was opened" : `${url} could not be opened: ${errorText}` };
      }
    }
    await settle(record);
    return {};
  });
}

async function rawCdp({ tab, method, params, timeout, dialogs, at }) {
  await theTab(tab);
  return call(tab, { dialogs, timeout, must: true }, async (record) => {
    await still(tab, at);
    const value = await cdp(tab, method, params ?? {}, record);
    await settle(record);
    return { value, type: "object" };
  });
}

async function cookies({ tab, urls, timeout, at }) {
  const { url } = await theTab(tab);
  await still(tab, at);
  return call(tab, { timeout, must: true }, async () => ({ value: (await cdp(tab, "Network.getCookies", { urls: urls ?? [url] })).cookies, type: "array" }));
}

const LARGEST = 1_568; // px on an image's longest side: models take no larger ones
const LONGEST = 16_000; // px of a page in one image: of more nothing could be made out

// What is not painted has no picture: a tab behind another comes to the front for it, in its window, and goes back.
async function inFront({ id, active, windowId }, work) {
  if ((await chrome.windows.get(windowId)).state === "minimized") throw failure("hidden", 'the window of the tab is minimised: {"cmd": "tabs", "action": "switch"} brings it back');
  const [front] = active ? [] : await chrome.tabs.query({ active: true, windowId });
  if (front) await chrome.tabs.update(id, { active: true });
  try {
    return await work();
  } finally {
    if (front) await chrome.tabs.update(front.id, { active: true }).catch(() => {}); // it was closed meanwhile
  }
}

// `clip` is in px of the page. What the browser draws for one of these depends on the screen and on the zoom: so it is
// measured, and drawn again if it is too large. While a window changes its size (the debugger's bar comes) an image may be
// put together of old pieces: two have to be alike, unless the page never is.
async function screenshot({ tab, full = false, format = "png", quality, clip, timeout, at }) {
  const shown = await theTab(tab);
  await still(tab, at);
  return call(tab, { timeout, must: true }, (record) => inFront(shown, async () => {
    const { cssVisualViewport: view, cssContentSize: page } = await cdp(tab, "Page.getLayoutMetrics");
    const seen = { x: view.pageX, y: view.pageY, width: view.clientWidth, height: view.clientHeight }, zoom = view.zoom || 1;
    const whole = { x: 0, y: 0, width: page.width, height: Math.min(page.height, LONGEST) };
    const { x, y, width, height, scale = 1 } = clip ?? (full ? whole : seen);
    const how = { format, captureBeyondViewport: x < seen.x || y < seen.y || x + width > seen.x + seen.width || y + height > seen.y + seen.height };
    if (format !== "png") how.quality = quality ?? 80;
    const longest = Math.max(width, height), wanted = Math.min(LARGEST, scale * longest);
    let data, before, drawn = wanted / longest / zoom;
    for (let n = 0; n < 6 && (n < 2 || data !== before) && Date.now() < record.deadline; n++) {
      before = data;
      ({ data } = await cdp(tab, "Page.captureScreenshot", { ...how, clip: { x: x * zoom, y: y * zoom, width: width * zoom, height: height * zoom, scale: drawn } }));
      const image = await createImageBitmap(await (await fetch(`data:image/${format};base64,${data}`)).blob());
      const most = Math.max(image.width, image.height);
      if (most > Math.min(LARGEST, wanted + 1)) drawn *= wanted / most, n = 0;
    }
    const ratio = Math.round((wanted / longest) * 1e4) / 1e4, left = full && !clip ? page.height - whole.height : 0;
    return {
      image: { media_type: `image/${format}`, data, ...(ratio === 1 ? {} : { scale: ratio }) },
      ...(left > 0 ? { note: `the image ends at ${LONGEST} px, ${left} more are below: use clip` } : {}),
    };
  }));
}
