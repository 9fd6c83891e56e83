// Server and client in time: one axis, one cursor through all lanes, zoom by dragging, buttons or keys.
const LANE = 76;

function drawLanes(box, state) {
  const run = data.runs[state.run];
  const own = requests.filter((r) => r.run === state.run && r.sent_s !== null && r.e2e_s !== null);
  const ends = own.flatMap((r) => [r.sent_s, r.sent_s + r.e2e_s]);
  for (const lane of run.lanes) for (const one of lane.series) ends.push(one.t[0], one.t[one.t.length - 1]);
  if (!ends.length) { box.replaceChildren(el('p', { class: 'note' }, 'No request of this run has an instant.')); return; }
  const all = extent(ends);
  if (!(all[1] > all[0])) all[1] = all[0] + 1;
  const [low, high] = state.range || all;
  const width = Math.max(300, box.clientWidth || 800);
  const narrow = width < 620;
  const area = { left: narrow ? 44 : 58, right: width - 10, width };
  const x = scale(low, high, area.left, area.right);
  const view = { box, run, own, all, low, high, x, area, lanes: [], rows: 1 };
  const drawn = [controlsOf(box, state, view), requestLane(view)];
  for (const lane of run.lanes) drawn.push(laneOf(view, lane));
  drawn.push(timeAxis(view));
  box.view = view;
  box.replaceChildren(...drawn.filter(Boolean));
  box.classList.add('lanes');
  cursor(box, state.cursor === undefined ? null : state.cursor, false);
}

function controlsOf(box, state, view) {
  const zoom = (factor) => () => zoomBy(box, factor);
  const buttons = [['Zoom in', zoom(0.5)], ['Zoom out', zoom(2)], ['Show all', () => redraw(box, { range: null })]].map(([name, act]) => {
    const button = el('button', { type: 'button' }, name);
    button.addEventListener('click', act);
    return button;
  });
  let select = null;
  if (data.runs.length > 1) {
    select = el('select', { 'aria-label': 'run' }, data.runs.map((run, n) => el('option', { value: n, selected: n === state.run }, plain(run.name))));
    select.addEventListener('change', () => redraw(box, { run: Number(select.value), range: null, cursor: null }));
  }
  const at = el('span', { class: 'note at' });
  view.at = at;
  return el('div', { class: 'controls' }, select, buttons, at);
}

function requestLane(view) {
  const ends = [];
  const placed = [...view.own].sort((a, b) => a.sent_s - b.sent_s).map((r) => {
    let row = ends.findIndex((end) => end <= r.sent_s);
    if (row < 0) row = ends.length;
    ends[row] = r.sent_s + r.e2e_s;
    return { r, row };
  });
  const thick = Math.max(2, Math.min(16, 150 / Math.max(1, ends.length)));
  const height = Math.max(24, ends.length * (thick + 1) + 8);
  const root = canvas(view, height);
  for (const { r, row } of placed) {
    if (r.sent_s + r.e2e_s < view.low || r.sent_s > view.high) continue;
    const [from, to] = [clip(view, r.sent_s), clip(view, r.sent_s + r.e2e_s)];
    const first = r.ttft_s === null ? to : clip(view, r.sent_s + r.ttft_s);
    const place = r.measured ? r.domain : 6;
    const y = 4 + row * (thick + 1);
    root.append(svg('rect', { x: px(from), y: px(y), width: px(Math.max(0.7, first - from)), height: px(thick), class: 'wait ' + colour(place) }));
    root.append(svg('rect', { x: px(first), y: px(y), width: px(Math.max(0.7, to - first)), height: px(thick), class: colour(place) }));
    if (r.outcome !== 'completed') root.append(cross(to, y + thick / 2, Math.min(5, thick / 2)));
  }
  view.placed = placed;
  const keys = data.domains.map((name, place) => key(place, name));
  const warm = view.own.some((r) => !r.measured) ? key(6, 'warm-up') : null;
  view.under = el('b', {});
  return el('div', { class: 'lane' }, el('div', { class: 'legend' }, el('span', { class: 'unit' }, 'requests'), keys, warm,
    el('span', { class: 'note' }, 'pale: until the first token'), view.under), root);
}

function clip(view, t) { return view.x.at(Math.min(view.high, Math.max(view.low, t))); }

function canvas(view, height) {
  const root = svg('svg', { viewBox: `0 0 ${view.area.width} ${height}`, width: view.area.width, height, role: 'presentation' });
  for (const value of view.x.ticks(view.area.width < 620 ? 4 : 8)) {
    root.append(svg('line', { x1: px(view.x.at(value)), x2: px(view.x.at(value)), y1: 0, y2: height, class: 'grid' }));
  }
  const line = svg('line', { y1: 0, y2: height, class: 'cursor', visibility: 'hidden' });
  const brush = svg('rect', { y: 0, height, width: 0, class: 'brush', visibility: 'hidden' });
  view.lanes.push({ root, line, brush });
  queueMicrotask(() => root.append(brush, line));
  return root;
}

function within(one, low, high) {
  let from = lastAt(one.t, low);
  if (from < 0) from = 0;
  let to = lastAt(one.t, high) + 2;
  if (to > one.t.length) to = one.t.length;
  return [from, to];
}
function lastAt(times, t) {
  let [low, high] = [0, times.length];
  while (low < high) { const mid = (low + high) >> 1; if (times[mid] <= t) low = mid + 1; else high = mid; }
  return low - 1;
}

function laneOf(view, lane) {
  const values = [];
  for (const one of lane.series) { const [from, to] = within(one, view.low, view.high); for (let n = from; n < to; n += 1) values.push(one.v[n]); }
  const root = canvas(view, LANE);
  const [low, high] = values.length ? extent([0, ...values]) : [0, 1];
  const y = scale(low, high > low ? high : low + 1, LANE - 6, 8);
  for (const value of ticks(y.low, y.high, 3)) {
    const at = px(y.at(value));
    root.append(svg('line', { x1: view.area.left, x2: view.area.right, y1: at, y2: at, class: 'grid' }));
    root.append(label(view.area.left - 6, at + 4, short(value), { 'text-anchor': 'end', class: 'soft name' }));
  }
  const keys = lane.series.map((one, place) => {
    draw(view, root, lane, one, place, y);
    one.readout = el('b', {});
    const sample = key(place, one.name, { line: lane.kind !== 'points', mark: lane.kind === 'points' });
    sample.append(one.readout);
    return sample;
  });
  return el('div', { class: 'lane' }, el('div', { class: 'legend' }, el('span', { class: 'unit' }, `${lane.name}, ${lane.unit}`), keys,
    el('span', { class: 'note' }, lane.note)), root);
}

function draw(view, root, lane, one, place, y) {
  const [from, to] = within(one, view.low, view.high);
  const box = svg('svg', { x: view.area.left, y: 0, width: view.area.right - view.area.left, height: LANE, viewBox: `${view.area.left} 0 ${view.area.right - view.area.left} ${LANE}`, overflow: 'hidden' });
  box.setAttribute('class', 'inner');
  root.append(box);
  if (lane.kind === 'points') {
    for (let n = from; n < to; n += 1) box.append(mark(place, view.x.at(one.t[n]), y.at(one.v[n]), 2.2));
    return;
  }
  let path = '';
  for (let n = from; n < to; n += 1) {
    const [px_, py] = [px(view.x.at(one.t[n])), px(y.at(one.v[n]))];
    path += n === from ? `M${px_} ${py}` : lane.kind === 'step' ? `H${px_}V${py}` : `L${px_} ${py}`;
  }
  box.append(svg('path', { d: path, class: 'line ' + stroke(place), 'stroke-dasharray': dash(place) }));
}

function timeAxis(view) {
  const root = svg('svg', { viewBox: `0 0 ${view.area.width} 36`, width: view.area.width, height: 36, role: 'presentation' });
  root.append(svg('line', { x1: view.area.left, x2: view.area.right, y1: 1, y2: 1, class: 'axis' }));
  for (const value of view.x.ticks(view.area.width < 620 ? 4 : 8)) root.append(label(view.x.at(value), 16, short(value), { 'text-anchor': 'middle', class: 'soft' }));
  root.append(label(view.area.right, 33, 's since the first measured request', { 'text-anchor': 'end', class: 'soft strong' }));
  return root;
}

function under(view, t) {
  const found = view.placed.filter(({ r }) => r.sent_s <= t && t <= r.sent_s + r.e2e_s);
  return found.length ? found[0].r : null;
}

function cursor(box, t, spoken) {
  const view = box.view;
  if (!view) return;
  states.get(box).cursor = t;
  const shown = t !== null && t >= view.low && t <= view.high;
  for (const { line } of view.lanes) {
    line.setAttribute('visibility', shown ? 'visible' : 'hidden');
    if (shown) { line.setAttribute('x1', px(view.x.at(t))); line.setAttribute('x2', px(view.x.at(t))); }
  }
  const parts = [];
  for (const lane of view.run.lanes) {
    for (const one of lane.series) {
      const n = shown ? lastAt(one.t, t) : -1;
      const value = n < 0 ? null : one.v[n];
      one.readout.textContent = value === null ? '' : short(value);
      if (value !== null) parts.push(`${one.name} ${short(value)}`);
    }
  }
  const request = shown ? under(view, t) : null;
  view.under.textContent = request ? plain(`${request.plan} ${request.prompt}`) : '';
  view.at.textContent = shown ? `at ${t.toFixed(3)} s` : '';
  if (spoken) say(`${t.toFixed(2)} seconds. ${request ? describe(request) + '. ' : ''}${parts.join(', ')}`);
}

function zoomBy(box, factor) {
  const view = box.view;
  const held = states.get(box).cursor;
  const centre = held !== null && held !== undefined && held >= view.low && held <= view.high ? held : (view.low + view.high) / 2;
  const span = Math.max(0.001, (view.high - view.low) * factor);
  const share = (centre - view.low) / (view.high - view.low);
  setRange(box, centre - span * share, centre + span * (1 - share));
}
function setRange(box, low, high) {
  const [a, b] = box.view.all;
  const span = Math.min(high - low, b - a);
  const from = Math.max(a, Math.min(low, b - span));
  redraw(box, { range: span >= b - a ? null : [from, from + span] });
}

function listenLanes(box) {
  let dragged = null;
  const time = (event) => {
    const root = event.target.closest('.lane > svg');
    if (!root || !box.view) return null;
    const area = root.getBoundingClientRect();
    const at = (event.clientX - area.left) * (box.view.area.width / area.width);
    return Math.min(box.view.high, Math.max(box.view.low, box.view.x.back(at)));
  };
  const brush = (from, to) => {
    for (const lane of box.view.lanes) {
      lane.brush.setAttribute('visibility', from === null ? 'hidden' : 'visible');
      if (from === null) continue;
      lane.brush.setAttribute('x', px(box.view.x.at(Math.min(from, to))));
      lane.brush.setAttribute('width', px(Math.abs(box.view.x.at(to) - box.view.x.at(from))));
    }
  };
  box.addEventListener('pointermove', (event) => {
    const t = time(event);
    if (t === null) return;
    if (dragged !== null) brush(dragged, t);
    cursor(box, t, false);
  });
  box.addEventListener('pointerdown', (event) => { dragged = time(event); });
  box.addEventListener('pointerup', (event) => {
    const t = time(event);
    if (dragged !== null && t !== null && Math.abs(box.view.x.at(t) - box.view.x.at(dragged)) > 6) setRange(box, Math.min(dragged, t), Math.max(dragged, t));
    else if (t !== null) { const request = under(box.view, t); if (request && event.target.closest('.lane') === box.querySelector('.lane')) open(request); }
    dragged = null;
    brush(null);
  });
  box.addEventListener('dblclick', () => redraw(box, { range: null }));
  box.addEventListener('pointerleave', () => { dragged = null; if (box.view) brush(null); });
  box.addEventListener('keydown', (event) => {
    if (event.target !== box || !box.view) return;
    const { low, high } = box.view;
    const held = states.get(box).cursor;
    const at = held === null || held === undefined ? (low + high) / 2 : held;
    const stride = ((high - low) / 100) * (event.key === 'ArrowLeft' ? -1 : 1);
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      event.preventDefault();
      if (event.shiftKey) setRange(box, low + 10 * stride, high + 10 * stride);
      else cursor(box, Math.min(high, Math.max(low, at + stride)), true);
    } else if (event.key === '+' || event.key === '=') zoomBy(box, 0.5);
    else if (event.key === '-') zoomBy(box, 2);
    else if (event.key === '0') redraw(box, { range: null });
    else if (event.key === 'Enter') { const request = under(box.view, at); if (request) open(request); }
    else if (event.key === 'Escape') cursor(box, null, false);
  });
}
