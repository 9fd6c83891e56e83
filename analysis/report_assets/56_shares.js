// Where the GPU's time went: a bar a rank, its classes always in one order, idle hollow and last.
function drawShares(box, state, figure) {
  const bars = data.traces[Number(figure.dataset.place)];
  const names = bars[0].shares.map(([name]) => name);
  const width = Math.max(300, box.clientWidth || 800);
  const narrow = width < 620;
  const line = narrow ? 52 : 38;
  const left = narrow ? 0 : 230;
  const plot = frame(box, { height: bars.length * line + 26, top: 4, bottom: 22, right: 2 });
  const x = scale(0, 1, left, width - 2);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    plot.root.append(label(x.at(share), plot.height - 6, Math.round(share * 100) + ' %', { 'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle', class: 'soft' }));
  }
  const marks = [];
  bars.forEach((bar, n) => {
    const y = n * line + (narrow ? 20 : 6);
    plot.root.append(label(0, narrow ? y - 5 : y + 16, clipped(bar.who, narrow ? 60 : 34)));
    let from = 0;
    bar.shares.forEach(([name, share], place) => {
      const [a, b] = [x.at(from), x.at(from + share)];
      from += share;
      if (!(b - a > 0.2)) return;
      const idle = name === 'idle';
      plot.root.append(svg('rect', { x: px(a), y, width: px(b - a), height: 24, class: idle ? 'hollow s6' : 'mark ' + colour(place) }));
      const said = `${name} ${shareText(share)}`;
      if (b - a > 7.2 * said.length) plot.root.append(label((a + b) / 2, y + 16, said, { 'text-anchor': 'middle', class: 'name halo' }));
      marks.push({ x: (a + b) / 2, y: y + 12, series: n, text: `${bar.who}\n${said}`, go: () => {} });
    });
  });
  reachable(box, plot, marks);
  const keys = names.filter((name) => name !== 'idle').map((name) => {
    const place = names.indexOf(name);
    return el('span', { class: 'key' }, svg('svg', { viewBox: '0 0 26 14', 'aria-hidden': 'true' }, svg('rect', { x: 2, y: 2, width: 22, height: 10, class: 'mark ' + colour(place) })), el('span', {}, name));
  });
  box.replaceChildren(el('div', { class: 'legend' }, keys), plot.root);
}
