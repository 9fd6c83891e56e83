// Levels of a sweep: throughput against latency, each number by level, ratios with their break-even.
const shareText = (v) => (v * 100).toFixed(v < 0.1 ? 2 : 1) + ' %';
const SWEEP = {
  tok: { title: 'output tokens/s', name: 'throughput', shown: (v) => v.toFixed(1) + ' tok/s', scale: 1 },
  ttft: { title: 'TTFT, ms', name: 'TTFT', shown: (v) => ms(v) + ' ms', scale: 1000, tails: true, slo: 'ttft_slo_s' },
  tpot: { title: 'TPOT, ms', name: 'TPOT', shown: (v) => ms(v) + ' ms', scale: 1000, tails: true, slo: 'tpot_slo_s' },
  e2e: { title: 'E2E, ms', name: 'E2E', shown: (v) => ms(v) + ' ms', scale: 1000, tails: true },
  decode: { title: 'decode rate of a request, tok/s', name: 'decode rate', shown: (v) => v.toFixed(2) + ' tok/s', scale: 1, tails: true },
  good: { title: 'requests that met the objectives', name: 'goodput', shown: shareText, scale: 100, unit: ' %' },
  queue: { title: 'queue time by the server, mean, ms', name: 'queue time', shown: (v) => ms(v) + ' ms', scale: 1000 },
  waiting: { title: 'requests waiting in the server, most seen', name: 'waiting', shown: (v) => String(v), scale: 1 },
  kv: { title: 'KV cache in use, % of its tokens, most seen', name: 'KV cache', shown: shareText, scale: 100 },
  steps: { title: 'tokens a target step', name: 'tokens a step', shown: (v) => v.toFixed(3), scale: 1 },
  joules: { title: 'energy, J a token', name: 'energy', shown: (v) => v.toFixed(3) + ' J/token', scale: 1 },
};
const TAILS = [['median', 'median'], ['p90', 'p90'], ['p95', 'p95'], ['p99', 'p99']];
const value = (one, field, tail) => (SWEEP[field].tails ? one[field][tail] : one[field]);
const seriesName = (one) => (one.role === 'control' ? 'control' : one.arm);

function tailButtons(box, field, state) {
  if (!SWEEP[field].tails) return null;
  const there = TAILS.filter(([tail]) => data.sweep.levels.some((one) => one[field][tail] !== null));
  return there.length > 1 ? choices(there, state.tail, (tail) => redraw(box, { tail }), 'which quantile') : null;
}

function sweepSeries(levels) {
  const found = new Map();
  for (const one of levels) {
    if (!found.has(one.series)) found.set(one.series, []);
    found.get(one.series).push(one);
  }
  return [...found.entries()].sort((a, b) => a[0] - b[0]);
}

function levelX(plot, levels) {
  const settings = levels.map((one) => one.setting);
  const known = settings.every((v) => v !== null);
  const names = [...new Set(levels.map((one) => one.level))];
  const at = (one) => (known ? one.setting : names.indexOf(one.level) + 1);
  const xs = [...new Set(levels.map(at))].sort((a, b) => a - b);
  const log = known && xs.length > 1 && xs[xs.length - 1] / xs[0] > 4;
  const x = scale(...padded(xs, log, 0.05), plot.left, plot.right, log);
  let last = -Infinity;
  const shown = xs.filter((v) => { const p = x.at(v); if (p - last < 34) return false; last = p; return true; });
  x.ticks = () => shown;
  return { x, at, name: (v) => (known ? short(v) : names[v - 1]), title: known ? data.sweep.unit : 'level' };
}

function sloLine(plot, y, field) {
  const limit = field.slo ? data.sweep.objectives[field.slo] : undefined;
  if (limit === undefined) return;
  const at = y.at(limit * field.scale);
  if (at < plot.top || at > plot.bottom) return;
  plot.root.append(svg('line', { x1: plot.left, x2: plot.right, y1: px(at), y2: px(at), class: 'one', 'stroke-dasharray': '6 4' }));
  plot.root.append(label(plot.right - 2, at - 5, `objective ${field.shown(limit)}`, { 'text-anchor': 'end', class: 'name soft halo' }));
}

function joined(points) { return points.map((p, n) => (n ? 'L' : 'M') + px(p.x) + ' ' + px(p.y)).join(''); }

// Throughput against latency: each mark a level; a good server goes far to the right before it rises.
function drawCurve(box, state) {
  const field = SWEEP[state.field];
  const tok = state.window === 'steady' && data.sweep.levels.some((one) => one.steady !== null) ? 'steady' : 'tok';
  const usable = data.sweep.levels.filter((one) => one[tok] !== null && value(one, state.field, state.tail) !== null);
  const buttons = [
    choices(['ttft', 'tpot', 'e2e'].map((id) => [id, SWEEP[id].name]), state.field, (id) => redraw(box, { field: id }), 'latency'),
    tailButtons(box, state.field, state),
    choices([['full', 'whole level'], ['steady', 'steady window']], tok === 'steady' ? 'steady' : 'full', (window) => redraw(box, { window }), 'window of the throughput'),
  ];
  if (!usable.length) { box.replaceChildren(...buttons.filter(Boolean), el('p', { class: 'note' }, 'No level has both numbers: see the tables.')); return; }
  const plot = frame(box, { right: 26 });
  const ys = usable.map((one) => value(one, state.field, state.tail) * field.scale);
  const log = wide(ys);
  const y = scale(...padded([...ys, ...(log ? [] : [0])], log, 0.07), plot.bottom, plot.top + 6, log);
  const x = scale(...padded([0, ...usable.map((one) => one[tok])], false, 0.03), plot.left, plot.right);
  axisY(plot, y, `${field.title}${field.tails ? ', ' + state.tail : ''}`);
  axisX(plot, x, 'output tokens/s of the server');
  sloLine(plot, y, field);
  const marks = [];
  const named = [];
  const keys = [];
  for (const [place, levels] of sweepSeries(usable)) {
    const points = levels.map((one) => ({ one, x: x.at(one[tok]), y: y.at(value(one, state.field, state.tail) * field.scale) }));
    plot.root.append(svg('path', { class: 'line ' + stroke(place), 'stroke-dasharray': dash(place), d: joined(points) }));
    keys.push(key(place, seriesName(levels[0]), { line: true }));
    for (const p of points) {
      plot.root.append(mark(place, p.x, p.y, 5));
      if (p.one.role !== 'control') named.push({ x: p.x, y: p.y - 4, text: p.one.setting === null ? p.one.level : short(p.one.setting) });
      marks.push({ x: p.x, y: p.y, series: place, go: () => { window.location.hash = p.one.href; }, text: `${seriesName(p.one)} \u00b7 ${p.one.level}\n${p.one[tok].toFixed(1)} tok/s, ${field.name} ${state.tail} ${field.shown(value(p.one, state.field, state.tail))}` });
    }
  }
  nameMarks(plot, named);
  reachable(box, plot, marks);
  box.replaceChildren(...[...buttons, el('div', { class: 'legend' }, keys), plot.root].filter(Boolean));
}

function drawSweep(box, state) {
  const there = Object.keys(SWEEP).filter((id) => data.sweep.levels.some((one) => value(one, id, 'median') !== null && value(one, id, 'median') !== undefined));
  const chosen = there.includes(state.field) ? state.field : there[0];
  if (!chosen) { box.replaceChildren(el('p', { class: 'note' }, 'No level has a number: see the tables.')); return; }
  const field = SWEEP[chosen];
  const tail = field.tails && data.sweep.levels.every((one) => one[chosen][state.tail] === null) ? 'median' : state.tail;
  const usable = data.sweep.levels.filter((one) => value(one, chosen, tail) !== null);
  const buttons = [
    choices(there.map((id) => [id, SWEEP[id].name]), chosen, (id) => redraw(box, { field: id }), 'what is shown'),
    tailButtons(box, chosen, { tail }),
  ];
  const plot = frame(box, { right: 26 });
  const ys = usable.map((one) => value(one, chosen, tail) * field.scale);
  const log = wide(ys);
  const y = scale(...padded([...ys, ...(log ? [] : [0])], log, 0.07), plot.bottom, plot.top + 6, log);
  const { x, at, name, title } = levelX(plot, usable);
  axisY(plot, y, field.title + (field.tails ? ', ' + tail : ''));
  axisX(plot, x, title, name);
  sloLine(plot, y, field);
  const marks = [];
  const keys = [];
  for (const [place, levels] of sweepSeries(usable)) {
    const points = levels.map((one) => ({ one, x: x.at(at(one)), y: y.at(value(one, chosen, tail) * field.scale) }));
    plot.root.append(svg('path', { class: 'line ' + stroke(place), 'stroke-dasharray': dash(place), d: joined(points) }));
    keys.push(key(place, seriesName(levels[0]), { line: true }));
    for (const p of points) {
      plot.root.append(mark(place, p.x, p.y, 5));
      marks.push({ x: p.x, y: p.y, series: place, go: () => { window.location.hash = p.one.href; }, text: `${seriesName(p.one)} \u00b7 ${p.one.level}\n${field.name}${field.tails ? ' ' + tail : ''} ${field.shown(value(p.one, chosen, tail))}` });
    }
  }
  reachable(box, plot, marks);
  box.replaceChildren(...[...buttons, el('div', { class: 'legend' }, keys), plot.root].filter(Boolean));
}

// Ratios to the baseline by level. A filled mark: its interval leaves out 1. The shaded span is the break-even's interval.
function drawBreakEven(box, state) {
  const arms = data.sweep.arms.filter((arm) => arm.points.some((p) => p[state.what].ratio !== null));
  const buttons = choices([['throughput', 'throughput of the server'], ['decode', 'decode rate of a request']], state.what, (what) => redraw(box, { what }), 'which ratio');
  if (!arms.length) { box.replaceChildren(buttons, el('p', { class: 'note' }, 'No level has a ratio: see the tables.')); return; }
  const plot = frame(box, { right: 26 });
  const points = arms.flatMap((arm) => arm.points.filter((p) => p[state.what].ratio !== null));
  const values = points.flatMap((p) => [p[state.what].ratio, ...(p[state.what].interval || [])]);
  const y = scale(...padded([...values, 0.97, 1.03], true, 0.06), plot.bottom, plot.top + 6, true);
  const { x, at, name, title } = levelX(plot, points);
  const marks = [];
  const keys = [];
  const said = [];
  for (const arm of arms) {
    const found = arm.break_even[state.what];
    if (found && found.interval && arm.role !== 'control') {
      const [a, b] = found.interval.map((v) => x.at(v));
      plot.root.append(svg('rect', { x: px(a), y: plot.top, width: px(Math.max(2, b - a)), height: plot.bottom - plot.top, class: 'band' }));
    }
    if (found && arm.role !== 'control') said.push(el('li', {}, el('b', {}, visible(arm.arm)), ': ', visible(found.said)));
  }
  axisY(plot, y, '');
  plot.root.append(label(2, plot.top - 7, 'ratio to the baseline, above 1 is ahead', { class: 'soft strong' }));
  axisX(plot, x, title, name);
  const one = px(y.at(1));
  plot.root.append(svg('line', { x1: plot.left, x2: plot.right, y1: one, y2: one, class: 'one' }));
  for (const arm of arms) {
    const own = arm.points.filter((p) => p[state.what].ratio !== null).map((p) => ({ p, r: p[state.what], x: x.at(at(p)), y: y.at(p[state.what].ratio) }));
    plot.root.append(svg('path', { class: 'line ' + stroke(arm.series), 'stroke-dasharray': dash(arm.series), d: joined(own) }));
    keys.push(key(arm.series, seriesName(arm), { line: true }));
    for (const { p, r, x: px_, y: py } of own) {
      if (r.interval) {
        const [a, b] = r.interval.map((v) => px(y.at(v)));
        plot.root.append(svg('path', { d: `M${px(px_)} ${a}V${b}M${px(px_ - 5)} ${a}h10M${px(px_ - 5)} ${b}h10`, class: 'line ' + stroke(arm.series), 'stroke-width': 2, 'stroke-dasharray': r.launches ? null : '3 3' }));
      }
      const resolved = r.launches && r.interval && (r.interval[0] > 1 || r.interval[1] < 1);
      plot.root.append(resolved ? mark(arm.series, px_, py, 5.5) : hollow(arm.series, px_, py, 5));
      const span = r.interval ? ` [${ratioText(r.interval[0])}, ${ratioText(r.interval[1])}]` + (r.launches ? '' : ' sampling of prompts alone') : ' no interval';
      marks.push({ x: px_, y: py, series: arm.series, go: () => { window.location.hash = p.href; }, text: `${seriesName(arm)} \u00b7 ${p.level}\n${ratioText(r.ratio)}${span}` });
    }
  }
  reachable(box, plot, marks);
  box.replaceChildren(buttons, el('div', { class: 'legend' }, keys), plot.root, el('ul', { class: 'note' }, said));
}
