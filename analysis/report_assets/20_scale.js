// Scales, axes, and moving from mark to mark by pointer and by keyboard.
function scale(low, high, from, to, log) {
  const into = log ? Math.log : (v) => v;
  let a = into(low);
  let b = into(high);
  if (!(b > a)) { const room = Math.abs(a) * 0.05 || 0.5; a -= room; b += room; }
  const at = (v) => from + ((into(v) - a) / (b - a)) * (to - from);
  const back = (p) => { const v = a + ((p - from) / (to - from)) * (b - a); return log ? Math.exp(v) : v; };
  const ends = log ? [Math.exp(a), Math.exp(b)] : [a, b];
  return { at, back, low: ends[0], high: ends[1], log, ticks: (n) => ticks(ends[0], ends[1], n || 6, log) };
}

function ticks(low, high, count, log) {
  if (log && high / low > 3) {
    const found = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade += 1) {
      for (const m of high / low > 300 ? [1] : high / low > 30 ? [1, 3] : high / low > 8 ? [1, 2, 3, 5, 7] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8]) {
        const value = m * 10 ** decade;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    if (found.length > 1) return found;
  }
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= high / step + 1e-9; n += 1) found.push(Number((n * step).toPrecision(12)));
  return found;
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}
function padded(values, log, share) {
  const [low, high] = extent(values);
  if (log) { const room = (high / low) ** share || 1.02; return [low / Math.max(room, 1.02), high * Math.max(room, 1.02)]; }
  const room = (high - low || Math.abs(high) || 1) * share;
  return [low - room, high + room];
}
const wide = (values) => { const [low, high] = extent(values); return low > 0 && high / low > 12; };

// The frame of a plot: width from its box, room for the axes, the drawn axes.
function frame(box, options) {
  const width = Math.max(300, box.clientWidth || 800);
  const narrow = width < 620;
  const height = options.height || (narrow ? 300 : 360);
  const area = { left: narrow ? 46 : 58, right: width - (options.right || 14), top: options.top || 18, bottom: height - (options.bottom || 44) };
  const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'presentation' });
  return { root, width, height, narrow, ...area };
}

function axisY(plot, y, title, shown) {
  for (const value of y.ticks(plot.narrow ? 5 : 6)) {
    const at = px(y.at(value));
    plot.root.append(svg('line', { x1: plot.left, x2: plot.right, y1: at, y2: at, class: 'grid' }));
    plot.root.append(label(plot.left - 6, at + 4, shown ? shown(value) : short(value), { 'text-anchor': 'end', class: 'soft' }));
  }
  plot.root.append(label(2, plot.top - 7, title, { class: 'soft strong' }));
}

function axisX(plot, x, title, shown) {
  for (const value of x.ticks(plot.narrow ? 4 : 8)) {
    const at = px(x.at(value));
    plot.root.append(svg('line', { x1: at, x2: at, y1: plot.top, y2: plot.bottom, class: 'grid' }));
    plot.root.append(label(at, plot.bottom + 16, shown ? shown(value) : short(value), { 'text-anchor': 'middle', class: 'soft' }));
  }
  plot.root.append(svg('line', { x1: plot.left, x2: plot.right, y1: plot.bottom, y2: plot.bottom, class: 'axis' }));
  plot.root.append(label(plot.right, plot.bottom + 34, title, { 'text-anchor': 'end', class: 'soft strong' }));
}

// Marks that can be reached: {x, y, series, text, go}. The box keeps which one is active.
function reachable(box, plot, marks) {
  const ring = svg('circle', { r: 9, class: 'ring', visibility: 'hidden' });
  plot.root.append(ring);
  const ordered = marks.map((one, place) => ({ ...one, place })).sort((a, b) => a.series - b.series || a.x - b.x || a.y - b.y);
  box.reach = { ordered, ring, plot, active: -1 };
}

function activate(box, place, spoken) {
  const { ordered, ring, plot } = box.reach;
  box.reach.active = place;
  const one = ordered[place];
  ring.setAttribute('visibility', one ? 'visible' : 'hidden');
  if (!one) { tip(null); return; }
  ring.setAttribute('cx', px(one.x));
  ring.setAttribute('cy', px(one.y));
  const area = plot.root.getBoundingClientRect();
  const ratio = area.width / plot.width;
  tip(one.text, area.left + one.x * ratio, area.top + one.y * ratio);
  if (spoken) say(one.text);
}

function nearest(box, event) {
  const { ordered, plot } = box.reach;
  const area = plot.root.getBoundingClientRect();
  const ratio = plot.width / area.width;
  const [x, y] = [(event.clientX - area.left) * ratio, (event.clientY - area.top) * ratio];
  let best = -1;
  let closest = 26 * 26;
  ordered.forEach((one, place) => {
    const d = (one.x - x) ** 2 + (one.y - y) ** 2;
    if (d < closest) { closest = d; best = place; }
  });
  return best;
}

function step(box, name) {
  const { ordered, active } = box.reach;
  if (!ordered.length) return -1;
  if (active < 0 || name === 'Home') return 0;
  if (name === 'End') return ordered.length - 1;
  if (name === 'ArrowRight') return Math.min(ordered.length - 1, active + 1);
  if (name === 'ArrowLeft') return Math.max(0, active - 1);
  const here = ordered[active];
  const names = [...new Set(ordered.map((one) => one.series))];
  const wanted = names[names.indexOf(here.series) + (name === 'ArrowDown' ? 1 : -1)];
  if (wanted === undefined) return active;
  let best = active;
  let closest = Infinity;
  ordered.forEach((one, place) => {
    if (one.series === wanted && Math.abs(one.x - here.x) < closest) { closest = Math.abs(one.x - here.x); best = place; }
  });
  return best;
}

const MOVES = ['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End'];
function listen(box) {
  box.addEventListener('pointermove', (event) => {
    if (!box.reach || !event.target.closest('svg') || event.target.closest('.legend')) return;
    activate(box, nearest(box, event), false);
  });
  box.addEventListener('pointerleave', () => { if (box.reach) activate(box, -1, false); });
  box.addEventListener('click', (event) => {
    if (!box.reach || event.target.closest('button, select, a, .legend')) return;
    const place = nearest(box, event);
    if (place >= 0) box.reach.ordered[place].go();
  });
  box.addEventListener('keydown', (event) => {
    if (!box.reach || event.target !== box) return;
    if (MOVES.includes(event.key)) {
      event.preventDefault();
      activate(box, step(box, event.key), true);
    } else if (event.key === 'Enter' && box.reach.active >= 0) {
      box.reach.ordered[box.reach.active].go();
    } else if (event.key === 'Escape') {
      activate(box, -1, false);
    }
  });
  box.addEventListener('blur', () => { if (box.reach) activate(box, -1, false); });
}
