// The table of requests: sorted by a column within each group, and filtered by text.
function cellValue(row, place) {
  const cell = row.cells[place];
  const data_ = cell.querySelector('data');
  const text = data_ ? data_.value : cell.textContent;
  const number = Number.parseFloat(text);
  return Number.isNaN(number) || /[^\d.eE+-]/.test(text) ? text : number;
}
function sortBy(table, place) {
  const up = !(table.sorted === place && table.up);
  table.sorted = place;
  table.up = up;
  for (const body of table.tBodies) {
    const [head, ...rows] = [...body.rows];
    rows.sort((a, b) => {
      const [p, q] = [cellValue(a, place), cellValue(b, place)];
      const order = typeof p === 'number' && typeof q === 'number' ? p - q : typeof p === 'number' ? -1 : typeof q === 'number' ? 1 : String(p).localeCompare(String(q));
      return up ? order : -order;
    });
    body.append(head, ...rows);
  }
  [...table.tHead.rows[0].cells].forEach((cell, n) => cell.setAttribute('aria-sort', n === place ? (up ? 'ascending' : 'descending') : 'none'));
  say(`sorted by ${table.tHead.rows[0].cells[place].textContent}, ${up ? 'ascending' : 'descending'}`);
}
function filterRows(text) {
  const wanted = text.trim().toLowerCase();
  let shown = 0;
  for (const row of document.querySelectorAll('table.requests tbody tr:not(.group)')) {
    const name = row.parentElement.dataset.domain || '';
    row.hidden = wanted !== '' && !(name + ' ' + row.textContent).toLowerCase().includes(wanted);
    shown += row.hidden ? 0 : 1;
  }
  say(`${shown} rows`);
}
