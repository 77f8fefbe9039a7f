// In front of a script of the agent's: el(12) is the element that the last scan numbered 12.
const el = n => {
  const carrier = document.createElement('i');
  const mark = document.createAttribute('data-el');
  mark.value = n;
  carrier.setAttributeNode(mark);
  window.dispatchEvent(new MouseEvent(TOKEN, {relatedTarget: carrier}));
  const found = mark.ownerElement;
  if (found === carrier) throw new Error(`el(${n}): no such number on this page; scan it again (web_scan)`);
  found.removeAttributeNode(mark);
  if (carrier.getAttribute('data-connected') === 'no')
    throw new Error(`el(${n}): this element is no longer on the page; scan it again (web_scan)`);
  return found;
};
