// What the user lets the agent have: nothing while paused, no private windows, and only the ticked tabs if they say so.

const DEFAULTS = { paused: false, only_ticked: false, private: false, name: "" };

export async function settings() {
  return { ...DEFAULTS, ...(await chrome.storage.local.get(DEFAULTS)) };
}

export async function isPaused() {
  return (await settings()).paused;
}

// Which browser profile this is, for an agent that is connected to several.
export async function profile() {
  let { id, name } = await chrome.storage.local.get({ id: "", name: "" });
  if (!id) {
    id = Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte) => "abcdefghjkmnpqrstuvwxyz23456789"[byte % 31]).join("");
    await chrome.storage.local.set({ id });
  }
  return { id, name };
}

export async function tickedTabs() {
  return new Set((await chrome.storage.session.get({ ticked: [] })).ticked);
}

export async function tick(tabId, on) {
  const ticked = await tickedTabs();
  if (on) ticked.add(tabId);
  else ticked.delete(tabId);
  await chrome.storage.session.set({ ticked: [...ticked] });
}

// A tab that the browser puts to sleep may get another id; who knows it by the old one still finds it.
chrome.tabs.onReplaced.addListener(async (added, removed) => {
  const { replaced } = await chrome.storage.session.get({ replaced: {} });
  await chrome.storage.session.set({ replaced: { ...replaced, [removed]: added } });
  if ((await tickedTabs()).has(removed)) await tick(added, true);
});

export async function currentId(tabId) {
  const { replaced } = await chrome.storage.session.get({ replaced: {} });
  while (Object.hasOwn(replaced, tabId)) tabId = replaced[tabId];
  return tabId;
}

// {id now: [ids before]} of tabs that the browser has put to sleep meanwhile
export async function formerIds() {
  const { replaced } = await chrome.storage.session.get({ replaced: {} });
  const former = {};
  for (const old of Object.keys(replaced)) (former[await currentId(old)] ??= []).push(Number(old));
  return former;
}

// A filter for tabs: pages that the agent can work in and that are shared.
export async function sharedTabs() {
  const { only_ticked, private: also } = await settings();
  const ticked = only_ticked ? await tickedTabs() : null;
  return (tab) => isPage(tab) && (also || !tab.incognito) && (!ticked || ticked.has(tab.id));
}

function isPage(tab) {
  const url = tab.url || tab.pendingUrl || "";
  return /^(https?|file):/i.test(url) || url === "about:blank";
}
