// Put in front of a script of the agent's, on one line: el(12) is the element that the last scan numbered 12. See page.js.
const el = n => {
  const carrier = document.createElement('i'), mark = document.createAttribute('data-el');
  mark.value = n;
  carrier.setAttributeNode(mark);
  window.dispatchEvent(new MouseEvent('TOKEN', {relatedTarget: carrier}));
  const found = mark.ownerElement;
  if (found === carrier) throw new Error(`there is no el(${n}) on this page: scan it (web_scan)`);
  found.removeAttributeNode(mark);
  if (carrier.getAttribute('data-connected') !== 'true') throw new Error(`el(${n}) is no longer on the page: scan it again (web_scan)`);
  return found;
};
