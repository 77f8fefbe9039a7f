// The connection to the agent on this computer: find it, make sure that it is ours, answer its calls.
// Nothing here touches a page; run.js does, and only for a call.

import { nonce, proof, readPairing, same } from "./pairing.js";
import { answer } from "./calls.js";
import { isPaused, profile } from "./sharing.js";

const BEAT = 20_000; // a message of ours keeps this worker awake, protocol pings don't
const PATIENCE = 5_000; // for the other side to prove itself
const NEAR = [500, 1_000, 2_000, 3_000]; // nobody listens there: look again soon, the agent may be starting
const FAR = [5_000, 15_000, 60_000]; // somebody listens and is not ours
const MAX_ANSWER = 48 * 1024 * 1024; // characters

let socket = null;
let retry = 0;
let failures = { near: 0, far: 0 };
let status = { state: "starting", why: "", server: null, since: null, port: null };

function say(state, why = "", more = {}) {
  status = { ...status, state, why, server: null, since: null, ...more };
}

chrome.storage.local.setAccessLevel({ accessLevel: "TRUSTED_CONTEXTS" }); // not for our script in pages

async function connect() {
  if (socket) return;
  clearTimeout(retry);
  socket = "opening";
  const pairing = await readPairing();
  if (!pairing) {
    socket = null;
    say("not set up", "This folder has no pairing: run `ga browser setup` and load the folder that it names.");
    retry = setTimeout(connect, FAR[1]);
    return;
  }
  const ws = (socket = new WebSocket(`ws://127.0.0.1:${pairing.port}/`));
  const own = nonce();
  let stage = "opening"; // → knocking → paired
  const patience = setTimeout(() => stage !== "paired" && ws.close(), PATIENCE);
  let beat = 0;

  ws.onopen = async () => {
    const time = Date.now();
    stage = "knocking";
    const knock = await proof(pairing.secret, "knock", pairing.port, own, time);
    ws.send(JSON.stringify({ knock: { nonce: own, time, proof: knock } }));
  };

  ws.onmessage = async (event) => {
    if (stage === "paired") return receive(ws, event.data);
    if (stage !== "knocking") return ws.close(); // more than one message before it has proved anything
    stage = "checking";
    const theirs = welcomeOf(event.data);
    if (!theirs || !same(theirs.proof, await proof(pairing.secret, "server", pairing.port, own, theirs.nonce))) {
      stage = "impostor";
      return ws.close();
    }
    const mine = await proof(pairing.secret, "extension", pairing.port, own, theirs.nonce);
    const about = { ...(await profile()), version: chrome.runtime.getManifest().version, agent: navigator.userAgent };
    if (ws.readyState !== WebSocket.OPEN) return;
    ws.send(JSON.stringify({ hello: { proof: mine, browser: about } }));
    clearTimeout(patience);
    stage = "paired";
    failures = { near: 0, far: 0 };
    say("connected", "", { server: theirs.about ?? null, since: Date.now(), port: pairing.port });
    beat = setInterval(() => ws.send('{"beat":1}'), BEAT);
  };

  ws.onclose = () => {
    clearTimeout(patience);
    clearInterval(beat);
    if (socket !== ws) return;
    socket = null;
    const where = `port ${pairing.port}`;
    if (stage === "opening") {
      say("no agent", `Nobody answers at ${where}: no agent is running, or the browser (a policy, a proxy, another extension) keeps this extension from addresses of this computer.`, { port: pairing.port });
      retry = setTimeout(connect, NEAR[Math.min(failures.near++, NEAR.length - 1)]);
    } else if (stage === "paired") {
      say("no agent", "The agent has ended the connection.", { port: pairing.port });
      retry = setTimeout(connect, NEAR[0]);
    } else {
      const who = stage === "impostor" ? "does not know the secret" : "did not accept this extension";
      say("refused", `The program at ${where} ${who}. If it is your agent, run \`ga browser setup\` again.`, { port: pairing.port });
      retry = setTimeout(connect, FAR[Math.min(failures.far++, FAR.length - 1)]);
    }
  };
}

function welcomeOf(text) {
  try {
    const { welcome } = JSON.parse(text);
    return typeof welcome.nonce === "string" && /^[0-9a-f]{64}$/.test(welcome.nonce) ? welcome : null;
  } catch {
    return null;
  }
}

async function receive(ws, text) {
  const call = JSON.parse(text);
  if (!Number.isInteger(call.id)) return;
  let reply;
  try {
    reply = await isPaused() ? { error: "paused", message: "the user has paused the agent in the extension's popup" } : await answer(call);
  } catch (error) {
    reply = { error: error.code ?? "failed", message: String(error?.message ?? error) };
  }
  let out = JSON.stringify({ id: call.id, ...reply });
  if (out.length > MAX_ANSWER) out = JSON.stringify({ id: call.id, error: "too_large", message: `the answer has ${out.length} characters, more than ${MAX_ANSWER}: return less at once` });
  if (ws.readyState === WebSocket.OPEN) ws.send(out);
}

chrome.runtime.onMessage.addListener((message, sender, respond) => {
  if (sender.id !== chrome.runtime.id || message !== "status") return false;
  connect();
  respond(status);
  return false;
});
chrome.alarms.onAlarm.addListener(connect);
chrome.runtime.onStartup.addListener(connect);
chrome.runtime.onInstalled.addListener(connect);
chrome.alarms.create("connect", { periodInMinutes: 1 / 6 }); // 10 s; where the browser wants at least 30 s it takes that
connect();
