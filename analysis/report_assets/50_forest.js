// A ratio with three digits, or with as many as tell it from 1.
function ratioText(value) {
  for (let n = 3; n < 9; n += 1) if (value === 1 || Number(value.toFixed(n)) !== 1) return value.toFixed(n);
  return value.toFixed(9);
}
const clipped = (text, most) => (text.length > most ? plain(text).slice(0, most - 1) + '\u2026' : plain(text));

// The comparison with its intervals. A filled mark: the interval leaves out 1. No interval: a hollow mark alone.
function drawForest(box) {
  const rows = data.forest;
  const width = Math.max(300, box.clientWidth || 800);
  const narrow = width < 620;
  const line = narrow ? 46 : 30;
  const plot = frame(box, { height: rows.length * line + 74, top: 30, bottom: 40 });
  const left = narrow ? 12 : 220;
  const right = narrow ? width - 12 : width - 330;
  const numbers = rows.flatMap((row) => [row.ratio, ...(row.interval || row.prompts_only || [])]).filter((v) => v > 0);
  const [low, high] = padded([...numbers, 0.95, 1.05], true, 0.06);
  const x = scale(low, high, left, right, true);
  for (const value of x.ticks(narrow ? 4 : 6)) {
    const at = px(x.at(value));
    plot.root.append(svg('line', { x1: at, x2: at, y1: plot.top, y2: plot.bottom, class: 'grid' }));
    plot.root.append(label(at, plot.bottom + 16, short(value), { 'text-anchor': 'middle', class: 'soft' }));
  }
  const one = px(x.at(1));
  plot.root.append(label(one - 6, plot.top - 10, '\u2190 slower', { 'text-anchor': 'end', class: 'soft' }), label(one + 6, plot.top - 10, 'faster \u2192', { class: 'soft' }));
  plot.root.append(label(right, plot.bottom + 34, 'ratio to the baseline', { 'text-anchor': 'end', class: 'soft strong' }));
  const marks = [];
  rows.forEach((row, n) => {
    const y = plot.top + n * line + (narrow ? 32 : line / 2);
    const domain = row.domain === null ? 0 : data.domains.indexOf(row.domain) + 1;
    const place = row.domain === null ? 6 : domain - 1;
    if (n && row.domain === null) plot.root.append(svg('line', { x1: 0, x2: width, y1: px(plot.top + n * line), y2: px(plot.top + n * line), class: 'axis' }));
    const name = row.domain === null ? plain(row.arm) : plain(row.domain);
    plot.root.append(label(narrow ? 0 : row.domain === null ? 0 : 18, narrow ? y - 16 : y + 4, name, { class: row.domain === null ? 'strong' : '' }));
    if (row.ratio === null) {
      plot.root.append(label(left, narrow ? y : y + 4, clipped(row.why, Math.floor((width - left) / 6.3)), { class: 'soft halo' }));
      marks.push({ x: left, y, series: n, text: `${name}\n${row.why}`, go: () => { window.location.hash = 'comparison'; } });
      return;
    }
    if (row.mde) {
      const [a, b] = [x.at(Math.max(low, Math.exp(-row.mde))), x.at(Math.min(high, Math.exp(row.mde)))];
      plot.root.append(svg('rect', { x: px(a), y: px(y - line * 0.3), width: px(b - a), height: px(line * 0.6), class: 'band' }));
    }
    const span = row.interval || row.prompts_only;
    if (span) {
      const [a, b] = span.map((v) => px(x.at(Math.min(high, Math.max(low, v)))));
      plot.root.append(svg('path', { d: `M${a} ${y - 5}V${y + 5}M${b} ${y - 5}V${y + 5}M${a} ${y}H${b}`, class: 'line ' + stroke(place), 'stroke-width': 2.2, 'stroke-dasharray': row.interval ? null : '3 3' }));
    }
    const resolved = row.interval && (row.interval[0] > 1 || row.interval[1] < 1);
    const at = x.at(row.ratio);
    plot.root.append(resolved ? mark(place, at, y, 6) : hollow(place, at, y, 5.5));
    const said = row.interval ? `${ratioText(row.ratio)}  [${ratioText(row.interval[0])}, ${ratioText(row.interval[1])}]` : `${ratioText(row.ratio)}  ${row.prompts_only ? 'prompts only' : 'no interval'}`;
    plot.root.append(label(narrow ? width : right + 18, narrow ? y - 16 : y + 4, `${said}  ${row.verdict}`, { 'text-anchor': narrow ? 'end' : 'start', class: 'name' }));
    const about = `${row.n_launches} paired launch${row.n_launches === 1 ? '' : 'es'}` + (row.interval ? '' : row.prompts_only ? ', dashed: sampling of prompts alone' : '') + (row.mde ? `, unseen below ${(row.mde * 100).toFixed(1)} %` : '') + (row.why ? `\n${row.why}` : '');
    marks.push({ x: at, y, series: n, text: `${row.arm}${row.domain ? ', ' + row.domain : ''}: ${said}\n${row.verdict}; ${about}`, go: () => { window.location.hash = row.href; } });
  });
  plot.root.append(svg('line', { x1: one, x2: one, y1: plot.top, y2: plot.bottom, class: 'one' }));
  reachable(box, plot, marks);
  box.replaceChildren(plot.root);
}
