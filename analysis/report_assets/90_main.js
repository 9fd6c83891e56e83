// What is drawn where, and what happens when the address, the width or the theme changes.
const DRAWN = {
  requests: { draw: drawRequests, state: { field: 'rate' } },
  paired: { draw: drawPaired, state: { arm: null } },
  accepted: { draw: drawAccepted, state: {} },
  levels: { draw: drawLevels, state: { field: 'ttft_s', domain: 'all' } },
  curve: { draw: drawCurve, state: { field: 'ttft', tail: 'median', window: 'steady' } },
  sweep: { draw: drawSweep, state: { field: 'tok', tail: 'median' } },
  shares: { draw: drawShares, state: {} },
  breakeven: { draw: drawBreakEven, state: { what: 'throughput' } },
  ecdf: { draw: drawEcdf, state: { domain: 'all' } },
  forest: { draw: drawForest, state: {} },
  lanes: { draw: drawLanes, state: { run: 0, range: null, cursor: null } },
};
const states = new Map();

function redraw(box, changes) {
  const figure = box.closest('figure');
  Object.assign(states.get(box), changes);
  const held = document.activeElement && box.contains(document.activeElement) && document.activeElement !== box ? document.activeElement.textContent : null;
  DRAWN[figure.dataset.chart].draw(box, states.get(box), figure);
  if (held !== null) {
    const again = [...box.querySelectorAll('button')].find((button) => button.textContent === held);
    if (again) again.focus({ preventScroll: true });
  }
}

function reveal(target) {
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === 'DETAILS') node.open = true;
  const inner = target.tagName === 'DETAILS' ? target : target.querySelector(':scope > details');
  if (inner) inner.open = true;
  document.querySelectorAll('tr.shown').forEach((row) => row.classList.remove('shown'));
  if (target.tagName === 'TR') target.classList.add('shown');
  target.scrollIntoView({ block: target.tagName === 'TR' ? 'center' : 'start' });
}

function follow() {
  const hash = window.location.hash.slice(1);
  const wanted = /^r(\d+)$/.exec(hash);
  if (wanted && requests[Number(wanted[1])]) { showRequest(requests[Number(wanted[1])]); return; }
  byId('detail').hidden = true;
  reveal(byId(hash));
}

document.documentElement.classList.add('scripted');
for (const figure of document.querySelectorAll('figure[data-chart]')) {
  const box = figure.querySelector('.plot');
  states.set(box, { ...DRAWN[figure.dataset.chart].state });
  if (figure.dataset.chart === 'lanes') listenLanes(box);
  else listen(box);
  redraw(box, {});
}
let drawnAt = window.innerWidth;
window.addEventListener('resize', () => {
  if (window.innerWidth === drawnAt) return;
  drawnAt = window.innerWidth;
  for (const box of states.keys()) redraw(box, {});
});
window.addEventListener('hashchange', follow);
document.addEventListener('click', (event) => { if (event.target.closest('a[href^="#r"]')) leave(); }, { capture: true });
document.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="#r"]');
  if (link && link.hash === window.location.hash && /^#r\d+$/.test(link.hash)) { event.preventDefault(); follow(); }
  const button = event.target.closest('button[data-diff]');
  if (button) showDifference(button);
  const title = event.target.closest('table.requests th button');
  if (title) sortBy(title.closest('table'), title.closest('th').cellIndex);
});
document.addEventListener('keydown', (event) => { if (event.key === 'Escape' && !byId('detail').hidden) hideRequest(); });
const filter = byId('filter');
if (filter) filter.addEventListener('input', () => filterRows(filter.value));
byId('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
});
if (window.location.hash) follow();
document.documentElement.dataset.ready = 'yes';
