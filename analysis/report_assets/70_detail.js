// One request: its numbers, its configuration, its raw record, its chunks in time, what was asked and answered.
function textOf(store, place) {
  const [text, length] = store[place];
  const rest = length - [...text].length;
  return el('pre', { class: 'model', dir: 'auto' }, visible(text), rest > 0 ? el('span', { class: 'ctl' }, `${rest} characters more on file`) : null);
}

function showRequest(request) {
  const run = data.runs[request.run];
  const box = byId('detail');
  const file = data.requests.files[request.file];
  const close = el('button', { type: 'button', class: 'close' }, 'Close');
  close.addEventListener('click', hideRequest);
  const dash_ = (value, shown) => (value === null ? '-' : shown(value));
  const between = (bounds, shown) => `${shown(bounds[0])} to ${shown(bounds[1])} (tokens of the first chunk unknown)`;
  const facts = [
    ['outcome', request.outcome + (request.finish ? `, finish reason ${request.finish}` : '')],
    request.error ? ['error', request.error] : null,
    ['TTFT', dash_(request.ttft_s, FIELDS.ttft_s.shown)],
    ['TTFV', dash_(request.ttfv_s, FIELDS.ttft_s.shown)],
    ['TPOT', request.tpot_bounds_s ? between(request.tpot_bounds_s, FIELDS.tpot_s.shown) : dash_(request.tpot_s, FIELDS.tpot_s.shown)],
    ['decode rate', request.rate_bounds ? between(request.rate_bounds, FIELDS.rate.shown) : request.rate === null ? `- (${request.rate_why})` : FIELDS.rate.shown(request.rate)],
    ['E2E', dash_(request.e2e_s, FIELDS.e2e_s.shown)],
    ['tokens', `${dash_(request.n_prompt_tokens, String)} prompt, ${dash_(request.n_tokens, String)} completion (server's count)`],
    request.drafted === null ? null : ['accepted', `${request.accepted} of ${request.drafted} drafted`],
    request.why === null ? null : ['task check', `${request.ok === null ? 'not judged' : request.ok ? 'valid' : 'invalid'}: ${request.why}`],
    ['sent', dash_(request.sent_s, (v) => `${v.toFixed(3)} s after the first measured request`)],
    request.level === null ? null : ['level', request.level],
    ['raw record', `${run.path}/${file}` + (request.line === null ? '' : `, line ${request.line}`)],
    ['plan', `${run.path}/${data.requests.plan_file}` + (request.plan_line === null ? '' : `, line ${request.plan_line}`)],
    ['received bytes', request.wire ? `${run.path}/${request.wire[0]}, ${request.wire[2]} bytes from ${request.wire[1]}` : 'not kept'],
    ['output SHA-256', request.sha256 + '\u2026'],
  ].filter(Boolean);
  const configuration = el('a', { href: '#' + run.anchor }, visible(`${run.name}: ${run.id}`));
  const list = el('dl', { class: 'facts' }, el('dt', {}, 'configuration'), el('dd', {}, configuration),
    facts.map(([name, value]) => [el('dt', {}, name), el('dd', {}, visible(value))]));
  box.replaceChildren(close, el('h2', {}, visible(`${request.plan}: ${request.prompt}`)), el('p', { class: 'note' }, visible(request.domainName + (request.repeat ? `, repeat ${request.repeat}` : ''))),
    list, el('h3', {}, 'Chunks in time'), chunks(box, request), el('h3', {}, 'Asked'), textOf(data.requests.prompts, request.question),
    el('h3', {}, 'Answered'), textOf(data.requests.outputs, request.output));
  const toRow = el('a', { href: '#row-' + request.number }, 'Its row in the table');
  if (byId('r' + request.number)) box.append(el('p', {}, toRow));
  toRow.addEventListener('click', (event) => { event.preventDefault(); cameFrom = null; hideRequest(); reveal(byId('r' + request.number)); });
  box.hidden = false;
  box.scrollTop = 0;
  box.focus({ preventScroll: true });
}

function hideRequest() {
  byId('detail').hidden = true;
  if (/^#r\d+$/.test(window.location.hash)) window.history.replaceState(null, '', '#records');
  if (cameFrom && document.contains(cameFrom.node)) {
    window.scrollTo({ top: cameFrom.y, behavior: 'instant' });
    cameFrom.node.focus({ preventScroll: true });
  }
  cameFrom = null;
}

function chunks(box, request) {
  if (request.marks === null) return el('p', { class: 'note' }, 'The page holds no chunk marks of this request: see its raw record.');
  if (!request.marks.length) return el('p', { class: 'note' }, 'No chunk arrived.');
  let [ticks, tokens, characters] = [0, 0, 0]; // each mark is stored as what it adds to the one before, times in 10 us
  const marks = request.marks.map(([a, b, c]) => [(ticks += a) / 1e5, b === null ? null : (tokens += b), (characters += c)]);
  const counted = marks.every((one) => one[1] !== null);
  const value = (one) => (counted ? one[1] : one[2]);
  const plot = frame({ clientWidth: Math.min(520, window.innerWidth - 40) }, { height: 180, bottom: 40 });
  const x = scale(0, Math.max(request.e2e_s || 0, marks[marks.length - 1][0]), plot.left, plot.right);
  const y = scale(0, Math.max(1, value(marks[marks.length - 1])), plot.bottom, plot.top);
  axisY(plot, y, counted ? 'tokens received' : 'characters received (the server counted no tokens)');
  axisX(plot, x, 's since sent');
  let path = `M${px(x.at(0))} ${px(y.at(0))}`;
  for (const one of marks) path += `H${px(x.at(one[0]))}V${px(y.at(value(one)))}`;
  const place = request.measured ? request.domain : 6;
  plot.root.append(svg('path', { d: path, class: 'line ' + stroke(place) }));
  for (const one of marks) plot.root.append(mark(place, x.at(one[0]), y.at(value(one)), 2));
  return el('div', { class: 'plot', role: 'img', 'aria-label': `${marks.length} chunk marks, the last after ${marks[marks.length - 1][0]} seconds` }, plot.root);
}

// Two answers word by word: the longest common subsequence of words, spaces and signs.
const LONGEST_DIFF = 1600;
function words(text) { return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || []; }
function difference(one, two) {
  const [a, b] = [words(one), words(two)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [left, right] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const found = [['same', a.slice(0, start).join('')]];
  if (left.length > LONGEST_DIFF || right.length > LONGEST_DIFF) {
    found.push(['del', left.join('')], ['ins', right.join('')]);
  } else {
    const width = right.length + 1;
    const table = new Uint16Array((left.length + 1) * width);
    for (let i = left.length - 1; i >= 0; i -= 1) {
      for (let j = right.length - 1; j >= 0; j -= 1) {
        table[i * width + j] = left[i] === right[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
      }
    }
    let [i, j] = [0, 0];
    const put = (kind, text) => { const last = found[found.length - 1]; if (last[0] === kind) last[1] += text; else found.push([kind, text]); };
    while (i < left.length || j < right.length) {
      if (i < left.length && j < right.length && left[i] === right[j]) { put('same', left[i]); i += 1; j += 1; }
      else if (j >= right.length || (i < left.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) { put('del', left[i]); i += 1; }
      else { put('ins', right[j]); j += 1; }
    }
  }
  found.push(['same', end ? a.slice(a.length - end).join('') : '']);
  return found.filter(([, text]) => text !== '');
}

function showDifference(button) {
  const [one, two] = button.dataset.diff.split(',').map((number) => data.requests.outputs[requests[Number(number)].output]);
  const parts = difference(one[0], two[0]).map(([kind, text]) => (kind === 'same' ? visible(text) : el(kind, {}, visible(text))));
  const cut = [one, two].some(([text, length]) => [...text].length < length) ? 'Both are cut in the page; they are whole on file. ' : '';
  button.replaceWith(el('p', { class: 'note' }, cut + 'Struck out: the first alone. Underlined: the second alone.'), el('pre', { class: 'model', dir: 'auto' }, parts));
}
