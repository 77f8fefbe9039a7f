// What one document remembers between calls, in the extension's isolated world: the number of every control, and the
// answer to el(n) from the page's own world. Everything else is computed anew. `TOKEN` is ours for this process.

const ga = (globalThis.__genericagent ??= (() => {
  const numbers = new WeakMap(), elements = new Map();
  const state = {base: window === window.top ? 0 : null, last: 0, watch: null};

  // An element keeps its number for as long as the document lives.
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

  // Where the page cannot look, we can: the extension's worlds have chrome.dom.
  const dom = globalThis.chrome?.dom;
  const shadowOf = e => e.shadowRoot ?? (dom && e instanceof HTMLElement ? dom.openOrClosedShadowRoot(e) : null);

  // Two worlds of one document share its nodes but no objects. The page's world sends an event with a loose carrier
  // element as relatedTarget; we hang the carrier's attribute node on the wanted element, and its ownerElement tells
  // the other side which one that is, wherever it lives: a closed shadow root or a frame of the same origin.
  const answer = event => {
    const carrier = event.relatedTarget, mark = carrier?.getAttributeNode('data-el');
    const wanted = mark && element(Number(mark.value));
    if (!wanted) return;
    carrier.removeAttributeNode(mark);
    wanted.setAttributeNode(mark);
    carrier.setAttribute('data-connected', wanted.isConnected ? 'yes' : 'no');
  };
  const tokens = new Set();
  const listen = token => {
    if (tokens.has(token)) return;
    tokens.add(token);
    window.addEventListener(token, answer, true);
  };

  // [i, j, …]: the j-th frame of the i-th frame of the top window. Comparing windows is allowed across origins.
  const pathOf = w => {
    const path = [];
    for (; w !== w.parent; w = w.parent) {
      let i = 0;
      while (i < w.parent.length && w.parent[i] !== w) i++;
      path.unshift(i < w.parent.length ? i : -1);
    }
    return path.join('.');
  };
  // A frame of its parent's origin is read by the parent.
  const ownRoot = () => {
    try { return !window.frameElement; } catch { return true; }
  };
  return {state, number, element, shadowOf, listen, pathOf, ownRoot};
})());
ga.listen(TOKEN);
