// Each request of a run, each prompt of an arm, acceptance against rate, medians by level.

// Outliers by the modified z-score (Iglewicz and Hoaglin, 1993): 0.6745 |x - median| / MAD above 3.5, on logarithms,
// in groups of five and more. They are named and stay in every number.
const OUTLIER = 3.5;
function middle(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
function outliers(items, value) {
  if (items.length < 5) return new Set();
  const logs = items.map((one) => Math.log(value(one)));
  const centre = middle(logs);
  const spread = middle(logs.map((v) => Math.abs(v - centre)));
  if (!(spread > 0)) return new Set();
  return new Set(items.filter((_, n) => (0.6745 * Math.abs(logs[n] - centre)) / spread > OUTLIER));
}
const OUTLIER_SAID = 'Named: outliers within their group by the modified z-score on logarithms (above 3.5, groups of 5 and more); none is left out.';

// Names beside marks, each moved down until it covers no other.
function nameMarks(plot, named) {
  const taken = [];
  for (const one of named.sort((a, b) => a.y - b.y)) {
    const width = 6.2 * one.text.length + 8;
    const left = one.x + 8 + width > plot.right ? one.x - 8 - width : one.x + 8;
    let y = one.y + 4;
    while (taken.some((t) => left < t.right && left + width > t.left && Math.abs(y - t.y) < 12)) y += 12;
    taken.push({ left, right: left + width, y });
    plot.root.append(label(left, y, plain(one.text), { class: 'name halo' }));
  }
}

function drawRequests(box, state) {
  const field = FIELDS[state.field];
  const own = requests.filter((r) => r.measured && r.order !== null);
  const values = [];
  for (const r of own) {
    if (r.outcome !== 'completed') continue;
    if (r[state.field] !== null) values.push(r[state.field]);
    else if (field.bounds && r[field.bounds]) values.push(...r[field.bounds]);
  }
  const buttons = choices(Object.entries(FIELDS).map(([id, f]) => [id, f.name]), state.field, (id) => redraw(box, { field: id }), 'what is shown');
  const legend = el('div', { class: 'legend' }, data.domains.map((name, place) => key(place, name)), own.some((r) => r.outcome !== 'completed')
    ? el('span', { class: 'key' }, svg('svg', { viewBox: '0 0 26 14' }, cross(13, 7, 4)), 'not completed') : null);
  if (!values.length) { box.replaceChildren(buttons, legend, el('p', { class: 'note' }, 'No request has this number: see the table.')); return; }
  const plot = frame(box, { right: 92 });
  const log = wide(values);
  const [low, high] = padded(values.map((v) => v * field.scale), log, 0.07);
  const y = scale(low, high, plot.bottom - 10, plot.top + 4, log);
  const x = scale(0.5, Math.max(1, own.length) + 0.5, plot.left + 4, plot.right);
  axisY(plot, y, field.title);
  const whole = x.ticks;
  x.ticks = (n) => whole(n).filter((v) => Number.isInteger(v) && v >= 1);
  axisX(plot, x, 'order sent');
  medianLines(plot, x, y, own, state.field, field);
  const marks = [];
  const named = [];
  for (const r of own) {
    const at = { x: x.at(r.order + 1), series: r.domain, go: () => open(r) };
    if (r.outcome !== 'completed') {
      plot.root.append(cross(at.x, plot.bottom - 5, 4));
      marks.push({ ...at, y: plot.bottom - 5, text: describe(r, r.outcome) });
    } else if (r[state.field] !== null) {
      at.y = y.at(r[state.field] * field.scale);
      plot.root.append(mark(r.domain, at.x, at.y, own.length > 300 ? 3 : 4.5));
      marks.push({ ...at, text: describe(r, `${field.name} ${field.shown(r[state.field])}`) });
    } else if (field.bounds && r[field.bounds]) {
      const [a, b] = r[field.bounds].map((v) => y.at(v * field.scale));
      at.y = (a + b) / 2;
      plot.root.append(svg('line', { x1: px(at.x), x2: px(at.x), y1: px(a), y2: px(b), class: stroke(r.domain), 'stroke-width': 2 }), hollow(r.domain, at.x, at.y, 4));
      marks.push({ ...at, text: describe(r, `${field.name} ${field.shown(r[field.bounds][0])} to ${field.shown(r[field.bounds][1])}: tokens of the first chunk unknown`) });
    }
  }
  const groups = new Map();
  for (const r of own) {
    if (r.outcome !== 'completed' || !(r[state.field] > 0)) continue;
    const id = JSON.stringify([r.domain, r.level]);
    if (!groups.has(id)) groups.set(id, []);
    groups.get(id).push(r);
  }
  groups.forEach((group) => {
    for (const r of outliers(group, (one) => one[state.field])) {
      named.push({ x: x.at(r.order + 1), y: y.at(r[state.field] * field.scale), text: r.prompt });
    }
  });
  nameMarks(plot, named.slice(0, 24));
  reachable(box, plot, marks);
  box.replaceChildren(buttons, legend, plot.root, el('p', { class: 'note' }, OUTLIER_SAID));
}

function medianLines(plot, x, y, own, name, field) {
  const ends = [];
  for (const group of data.runs[0].medians) {
    const place = data.domains.indexOf(group.domain);
    if (place < 0 || group[name] === null) continue;
    const orders = own.filter((r) => r.domain === place && r.level === group.level).map((r) => r.order);
    if (!orders.length) continue;
    const at = px(y.at(group[name] * field.scale));
    const whole = group.level === null;
    const [from, to] = whole ? [plot.left, plot.right] : [x.at(Math.min(...orders) + 0.6), x.at(Math.max(...orders) + 1.4)];
    plot.root.append(svg('line', { x1: px(from), x2: px(to), y1: at, y2: at, class: stroke(place), 'stroke-width': 1.5, 'stroke-dasharray': dash(place) || '14 3' }));
    if (whole) ends.push({ at, place, text: field.shown(group[name]) });
  }
  let last = -Infinity;
  for (const one of ends.sort((a, b) => a.at - b.at)) {
    last = Math.max(one.at + 4, last + 13);
    plot.root.append(label(plot.right + 4, last, one.text, { class: 'name ' + colour(one.place) }));
  }
}

function drawPaired(box, state) {
  const found = data.pairs.find((one) => one.arm === state.arm) || data.pairs.find((one) => one.arm !== 'control') || data.pairs[0];
  const entry = found.arm === 'control' ? data.compare.control : data.compare.arms.find((one) => one.arm === found.arm);
  const prompts = new Map();
  for (const [launch, base, other] of found.pairs) {
    const [a, b] = [requests[base], requests[other]];
    const id = a.domain + ' ' + a.prompt;
    if (!prompts.has(id)) prompts.set(id, { domain: a.domain, prompt: a.prompt, pairs: [] });
    prompts.get(id).pairs.push({ launch, a, b, ratio: b.rate / a.rate });
  }
  const groups = data.domains.map((name, domain) => {
    const own = [...prompts.values()].filter((one) => one.domain === domain);
    for (const one of own) one.mean = Math.exp(one.pairs.reduce((sum, p) => sum + Math.log(p.ratio), 0) / one.pairs.length);
    return { name, domain, own: own.sort((p, q) => p.mean - q.mean) };
  }).filter((group) => group.own.length);
  const plot = frame(box, { top: 40, bottom: 24 });
  const ratios = found.pairs.map(([, base, other]) => requests[other].rate / requests[base].rate);
  const [low, high] = padded([...ratios, 1], true, 0.07);
  const y = scale(low, high, plot.bottom, plot.top, true);
  axisY(plot, y, '');
  plot.root.append(label(2, 12, `decode rate, ${plain(found.arm)} / baseline`, { class: 'soft strong' }));
  const total = groups.reduce((sum, group) => sum + group.own.length + 1, 0);
  const room = (plot.right - plot.left) / total;
  let place = 0.5;
  const marks = [];
  const named = [];
  for (const group of groups) {
    const [from, to] = [plot.left + place * room, plot.left + (place + group.own.length) * room];
    const numbers = entry && entry.by_domain ? entry.by_domain[group.name] : null;
    if (numbers && numbers.interval) {
      const [a, b] = numbers.interval.map((v) => y.at(Math.min(high, Math.max(low, v))));
      plot.root.append(svg('rect', { x: px(from), y: px(b), width: px(to - from), height: px(Math.max(1, a - b)), class: 'band' }));
    }
    if (numbers && numbers.ratio) {
      const at = px(y.at(numbers.ratio));
      plot.root.append(svg('line', { x1: px(from), x2: px(to), y1: at, y2: at, class: stroke(group.domain), 'stroke-width': 2, 'stroke-dasharray': dash(group.domain) }));
    }
    plot.root.append(label((from + to) / 2, plot.top - 8, plain(group.name), { 'text-anchor': 'middle', class: 'strong ' + colour(group.domain) }));
    const odd = outliers(group.own, (one) => one.mean);
    group.own.forEach((one, n) => {
      const at = from + (n + 0.5) * room;
      const ys = one.pairs.map((p) => y.at(p.ratio));
      plot.root.append(svg('line', { x1: px(at), x2: px(at), y1: px(Math.min(...ys)), y2: px(Math.max(...ys)), class: stroke(group.domain), 'stroke-opacity': 0.5 }));
      one.pairs.forEach((p, k) => {
        plot.root.append(mark(group.domain, at, ys[k], Math.max(2.2, Math.min(4.5, room * 0.8))));
        marks.push({ x: at, y: ys[k], series: group.domain, go: () => open(p.b), text: `${one.prompt} \u00b7 launch ${p.launch}\n${p.a.rate.toFixed(2)} \u2192 ${p.b.rate.toFixed(2)} tok/s: ${p.ratio.toFixed(3)}` });
      });
      if (odd.has(one)) named.push({ x: at, y: y.at(one.mean), text: one.prompt });
    });
    place += group.own.length + 1;
  }
  const one = px(y.at(1));
  plot.root.append(svg('line', { x1: plot.left, x2: plot.right, y1: one, y2: one, class: 'one' }));
  nameMarks(plot, named.slice(0, 24));
  reachable(box, plot, marks);
  const arms = choices(data.pairs.map((p) => [p.arm, plain(p.arm)]), found.arm, (arm) => redraw(box, { arm }), 'arm');
  const note = (entry && entry.ratio === null ? `These pairs enter no ratio: ${plain(entry.because || 'see the table')}. ` : '') + 'The line of a domain is its ratio, the grey band its interval. ' + OUTLIER_SAID;
  box.replaceChildren(arms, plot.root, el('p', { class: 'note' }, note));
}

function drawAccepted(box) {
  const own = requests.filter((r) => r.measured && r.drafted > 0 && r.rate !== null);
  const byArm = data.kind === 'study';
  const names = byArm ? data.arms : data.domains;
  const series = (r) => (byArm ? names.indexOf(data.runs[r.run].arm) : r.domain);
  if (!own.length) { box.replaceChildren(el('p', { class: 'note' }, 'No request has both numbers.')); return; }
  const plot = frame(box, {});
  const y = scale(...padded(own.map((r) => r.rate), false, 0.07), plot.bottom, plot.top);
  const x = scale(-0.02, 1.02, plot.left, plot.right);
  axisY(plot, y, 'decode rate, tok/s');
  axisX(plot, x, 'accepted / drafted tokens of the request');
  const marks = own.map((r) => {
    const at = { x: x.at(r.accepted / r.drafted), y: y.at(r.rate), series: series(r) };
    plot.root.append(mark(at.series, at.x, at.y, 4.5));
    return { ...at, go: () => open(r), text: describe(r, `${r.accepted} of ${r.drafted} accepted, ${r.rate.toFixed(2)} tok/s`) };
  });
  reachable(box, plot, marks);
  const used = [...new Set(own.map(series))].sort((a, b) => a - b);
  box.replaceChildren(el('div', { class: 'legend' }, used.map((place) => key(place, names[place]))), plot.root);
}

function drawLevels(box, state) {
  const field = FIELDS[state.field];
  const name = state.field === 'rate' ? 'decode_tok_per_s' : state.field;
  const levels = [...new Set(data.levels.flatMap((one) => one.levels))];
  const number = (level) => Number(String(level).split('=').pop()); // "users=8" stands at 8
  const numeric = levels.every((level) => level !== '' && Number.isFinite(number(level)) && number(level) > 0);
  const at = (level) => (numeric ? number(level) : levels.indexOf(level) + 1);
  const shown = data.levels.filter((one) => state.domain === 'every domain' ? one.domain !== 'all' : one.domain === 'all');
  const points = shown.flatMap((one) => one.values[name].map((v) => v)).filter((v) => v !== null);
  const buttons = [
    choices(Object.entries(FIELDS).map(([id, f]) => [id, f.name]), state.field, (id) => redraw(box, { field: id }), 'what is shown'),
    choices([['all', 'all together'], ['every domain', 'each domain']], state.domain, (domain) => redraw(box, { domain }), 'domains'),
  ];
  if (!points.length) { box.replaceChildren(...buttons, el('p', { class: 'note' }, 'No level has this number.')); return; }
  const plot = frame(box, {});
  const log = wide(points);
  const y = scale(...padded([...points.map((v) => v * field.scale), ...(log ? [] : [0])], log, 0.06), plot.bottom, plot.top, log);
  const xs = levels.map(at);
  const x = scale(...padded(xs, numeric && wide([...xs, Math.max(...xs)]), 0.06), plot.left, plot.right, numeric && wide(xs));
  axisY(plot, y, field.title);
  x.ticks = () => xs;
  axisX(plot, x, 'level', (v) => String(numeric ? v : levels[v - 1]));
  const marks = [];
  const keys = [];
  shown.forEach((one, place) => {
    const title = (data.runs.length > 1 ? data.runs[one.run].name + ', ' : '') + one.domain;
    keys.push(key(place, title, { line: true }));
    const own = one.levels.map((level, n) => ({ level, value: one.values[name][n] })).filter((p) => p.value !== null);
    plot.root.append(svg('path', { class: 'line ' + stroke(place), 'stroke-dasharray': dash(place), d: own.map((p, n) => (n ? 'L' : 'M') + px(x.at(at(p.level))) + ' ' + px(y.at(p.value * field.scale))).join('') }));
    for (const p of own) {
      const spot = { x: x.at(at(p.level)), y: y.at(p.value * field.scale) };
      plot.root.append(mark(place, spot.x, spot.y, 4.5));
      marks.push({ ...spot, series: place, text: `${title} \u00b7 level ${p.level}\nmedian ${field.name} ${field.shown(p.value)}`, go: () => { window.location.hash = one.anchor; } });
    }
  });
  reachable(box, plot, marks);
  box.replaceChildren(...buttons, el('div', { class: 'legend' }, keys), plot.root);
}
