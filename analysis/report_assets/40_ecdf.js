// Distributions as step curves: the share of requests that took at most so long. Nothing is binned or smoothed.
function nearestRank(sorted) { return sorted[Math.ceil(sorted.length / 2) - 1]; }

function drawEcdf(box, state, figure) {
  const name = figure.dataset.field;
  const field = FIELDS[name];
  const byArm = figure.dataset.by === 'arm';
  const names = byArm ? data.arms : data.domains;
  const whole = name === 'ttft_s' ? ['completed', 'no_usage'] : ['completed'];
  const levels = [...new Set(requests.filter((r) => r.measured).map((r) => r.level))].filter((level) => level !== null);
  const level = state.level === undefined ? levels[0] : state.level;
  const own = requests.filter((r) => r.measured && (levels.length === 0 || level === null || r.level === level) && whole.includes(r.outcome) && (!byArm || state.domain === 'all' || r.domainName === state.domain));
  const known = own.filter((r) => r[name] !== null && r[name] > 0);
  const buttons = [
    byArm ? choices(['all', ...data.domains].map((d) => [d, d]), state.domain, (domain) => redraw(box, { domain }), 'domain') : null,
    levels.length > 1 ? choices([...levels.map((one) => [one, `level ${plain(one)}`]), [null, 'all levels mixed']], level, (one) => redraw(box, { level: one }), 'level') : null,
  ];
  const title = el('h3', {}, field.name);
  if (!known.length) { box.replaceChildren(...[title, ...buttons, el('p', { class: 'note' }, 'No request has this number.')].filter(Boolean)); return; }
  const plot = frame(box, { height: 290, top: 28 });
  const values = known.map((r) => r[name] * field.scale);
  const log = wide(values);
  const x = scale(...padded(values, log, 0.04), plot.left, plot.right, log);
  const y = scale(0, 1, plot.bottom, plot.top);
  y.ticks = () => [0, 0.25, 0.5, 0.75, 1];
  axisY(plot, y, 'share of requests', (v) => Math.round(v * 100) + ' %');
  axisX(plot, x, field.title);
  const marks = [];
  const keys = [];
  names.forEach((series, place) => {
    const sorted = known.filter((r) => (byArm ? data.runs[r.run].arm === series : r.domain === place)).sort((a, b) => a[name] - b[name]);
    if (!sorted.length) return;
    let path = `M${px(plot.left)} ${px(y.at(0))}`;
    sorted.forEach((r, n) => {
      const at = px(x.at(r[name] * field.scale));
      path += `H${at}V${px(y.at((n + 1) / sorted.length))}`;
      marks.push({ x: at, y: y.at((n + 1) / sorted.length), series: place, go: () => open(r), text: describe(r, `${field.name} ${field.shown(r[name])}: ${n + 1} of ${sorted.length} at most so long`) });
    });
    plot.root.append(svg('path', { d: path + `H${px(plot.right)}`, class: 'line ' + stroke(place), 'stroke-dasharray': dash(place) }));
    const median = nearestRank(sorted);
    plot.root.append(mark(place, x.at(median[name] * field.scale), y.at(0.5), 5.5));
    keys.push(key(place, `${series}: ${sorted.length}, median ${field.shown(median[name])}`, { line: true }));
  });
  reachable(box, plot, marks);
  const lacking = own.length - known.length;
  const note = lacking ? `${lacking} of ${own.length} requests have no such number: see the table.` : null;
  box.replaceChildren(...[title, ...buttons, el('div', { class: 'legend' }, keys), plot.root, note && el('p', { class: 'note' }, note)].filter(Boolean));
}
