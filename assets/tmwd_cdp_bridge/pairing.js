// Who is at the other end. Both sides know a secret that `ga browser setup` made; neither ever sends it.
// Each proof names its role and the port, so that no proof can be used for another purpose or passed on to another port.

const bytes = new TextEncoder();

export function nonce() {
  return hex(crypto.getRandomValues(new Uint8Array(32)));
}

export async function proof(secret, role, port, ...parts) {
  const key = await crypto.subtle.importKey("raw", bytes.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const text = ["ga-bridge-1", role, port, ...parts].join("|");
  return hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes.encode(text))));
}

export function same(a, b) {
  if (typeof a !== "string" || a.length !== b.length) return false;
  let differ = 0;
  for (let i = 0; i < a.length; i++) differ |= a.charCodeAt(i) ^ b.charCodeAt(i);
  return differ === 0;
}

// What setup wrote beside this file: {secret, port}. Read from the disk each time, so a new setup needs no reload.
export async function readPairing() {
  try {
    const found = await (await fetch(chrome.runtime.getURL("pairing.json"), { cache: "no-store" })).json();
    return typeof found.secret === "string" && found.secret.length >= 43 && Number.isInteger(found.port) ? found : null;
  } catch {
    return null; // the folder is the shipped one, not the copy with a secret
  }
}

function hex(array) {
  return Array.from(array, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
