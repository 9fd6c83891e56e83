// The page's data, and elements made from it. Text from records goes in as text nodes only, its steering characters
// shown by their code points, as the tables made outside do.
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const valueOf = (column, number) => (column.of ? column.of[column.at ? column.at[number] : 0] : column[number]);
const requests = Array.from({ length: data.requests.n }, (_, number) => {
  const found = { number };
  data.requests.fields.forEach((name, place) => { found[name] = valueOf(data.requests.columns[place], number); });
  found.domainName = found.domain < 0 ? 'warm-up' : data.domains[found.domain];
  found.measured = found.phase === 'measured';
  return found;
});

const SVG = 'http://www.w3.org/2000/svg';
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(4)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const label = (x, y, text, attributes) => svg('text', { x: px(x), y: px(y), ...attributes }, String(text));
const px = (value) => Math.round(value * 100) / 100;

function visible(text) {
  const found = [];
  let last = 0;
  for (const match of String(text).matchAll(STEERING)) {
    found.push(text.slice(last, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, '0');
    found.push(el('span', { class: 'ctl' }, 'U+' + code));
    last = match.index + match[0].length;
  }
  found.push(String(text).slice(last));
  return found.filter((part) => part !== '');
}
const plain = (text) => String(text).replace(STEERING, (c) => '\u27e8U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '\u27e9');

// Numbers as the tables print them: seconds become milliseconds in print only.
function ms(seconds) {
  const value = seconds * 1000;
  return value >= 1000 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
const short = (value) => (value === 0 ? '0' : String(Number(value.toPrecision(4))));
const FIELDS = {
  rate: { title: 'decode rate, tok/s', name: 'decode rate', shown: (v) => v.toFixed(2) + ' tok/s', scale: 1, bounds: 'rate_bounds' },
  ttft_s: { title: 'TTFT, ms', name: 'TTFT', shown: (v) => ms(v) + ' ms', scale: 1000 },
  tpot_s: { title: 'TPOT, ms', name: 'TPOT', shown: (v) => ms(v) + ' ms', scale: 1000, bounds: 'tpot_bounds_s' },
  e2e_s: { title: 'E2E, ms', name: 'E2E', shown: (v) => ms(v) + ' ms', scale: 1000 },
};

const N_COLOURS = 7;
const colour = (place) => 'c' + (place % N_COLOURS);
const stroke = (place) => 's' + (place % N_COLOURS);
const DASHES = [null, '7 3', '2 3', '9 3 2 3', '4 2', '12 4', '1 2'];
const dash = (place) => DASHES[place % DASHES.length];

// A shape for each series beside its colour.
function shape(place, x, y, r) {
  const corners = (points) => 'M' + points.map(([dx, dy]) => px(x + dx * r) + ' ' + px(y + dy * r)).join('L') + 'Z';
  switch ((place + Math.floor(place / N_COLOURS)) % N_COLOURS) { // a second round of colours has other shapes
    case 0: return `M${px(x - r)} ${px(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case 1: return corners([[-0.88, -0.88], [0.88, -0.88], [0.88, 0.88], [-0.88, 0.88]]);
    case 2: return corners([[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]);
    case 3: return corners([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
    case 4: return corners([[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]);
    case 5: return corners([[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2],
      [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]]);
    default: return corners([[-1.3, -0.5], [1.3, -0.5], [1.3, 0.5], [-1.3, 0.5]]);
  }
}
const mark = (place, x, y, r, attributes) => svg('path', { d: shape(place, x, y, r), class: 'mark ' + colour(place), ...attributes });
const hollow = (place, x, y, r) => svg('path', { d: shape(place, x, y, r), class: 'hollow ' + stroke(place) });
const cross = (x, y, r) => svg('path', { d: `M${px(x - r)} ${px(y - r)}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`, class: 'fail' });

function key(place, name, options) {
  const sample = svg('svg', { viewBox: '0 0 26 14', 'aria-hidden': 'true' });
  if (options && options.line) sample.append(svg('path', { d: 'M1 7H25', class: 'line ' + stroke(place), 'stroke-dasharray': dash(place) }));
  if (!options || options.mark !== false) sample.append(mark(place, 13, 7, 4.5));
  return el('span', { class: 'key' }, sample, el('span', {}, visible(name)));
}

function choices(names, chosen, choose, title) {
  const buttons = names.map(([value, text]) => {
    const button = el('button', { type: 'button', 'aria-pressed': String(value === chosen) }, text);
    button.addEventListener('click', () => choose(value));
    return button;
  });
  return el('div', { class: 'controls', role: 'group', 'aria-label': title }, buttons);
}

function say(text) { byId('said').textContent = plain(text); }
function tip(text, x, y) {
  const box = byId('tip');
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = plain(text);
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  box.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - width - 8)) + 'px';
  box.style.top = (y + 18 + height > window.innerHeight ? y - height - 12 : y + 18) + 'px';
}
function describe(request, extra) {
  const run = data.runs[request.run];
  const head = `${request.plan} \u00b7 ${request.prompt} \u00b7 ${request.domainName}` + (data.runs.length > 1 ? ` \u00b7 ${run.name}` : '');
  return extra ? head + '\n' + extra : head;
}

// Where a reader was when a request was opened: the address moves the page and takes the focus away.
let cameFrom = null;
function leave() { if (byId('detail').hidden) cameFrom = { node: document.activeElement, y: window.scrollY }; }
function open(request) { leave(); window.location.hash = 'r' + request.number; }
