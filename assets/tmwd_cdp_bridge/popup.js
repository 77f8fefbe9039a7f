// What the user sees and decides: who is connected, pause, which tabs are shared.

import { settings, tick, tickedTabs } from "./sharing.js";

const at = (id) => document.getElementById(id);
const TITLES = { connected: "Connected", "no agent": "No agent", refused: "Not paired", "not set up": "Not set up", starting: "Looking…" };

async function show() {
  const [status, now, ticked, [tab]] = await Promise.all([
    chrome.runtime.sendMessage("status"), settings(), tickedTabs(), chrome.tabs.query({ active: true, currentWindow: true }),
  ]);
  const { server } = status;
  at("state").className = now.paused ? "paused" : status.state;
  at("state").textContent = now.paused ? "Paused: the agent can see and do nothing here" : TITLES[status.state] ?? status.state;
  at("why").textContent = status.why || (server ? `${server.name}, process ${server.pid}, port ${status.port}, since ${new Date(status.since).toLocaleTimeString()}` : "");
  at("pause").textContent = now.paused ? "Go on" : "Pause";
  at("all").checked = !now.only_ticked;
  at("ticked").checked = now.only_ticked;
  at("private").checked = now.private;
  at("this").checked = ticked.has(tab?.id);
  at("this").disabled = !now.only_ticked || !tab;
  at("this").onchange = async (event) => {
    await tick(tab.id, event.target.checked);
    show();
  };
  if (document.activeElement !== at("name")) at("name").value = now.name;
}

async function set(change) {
  await chrome.storage.local.set(change);
  show();
}

at("pause").onclick = async () => set({ paused: !(await settings()).paused });
at("all").onchange = () => set({ only_ticked: false });
at("ticked").onchange = () => set({ only_ticked: true });
at("private").onchange = (event) => set({ private: event.target.checked });
at("name").onchange = (event) => set({ name: event.target.value.trim() });
show();
setInterval(show, 1_000); // while it is open
