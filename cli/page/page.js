'use strict';
// The page of judged rows. Everything outside is put in as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const report = data.report;
  const image = data.image;
  const at = id => document.getElementById(id);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const CELLS = ['later than the query', 'not in the row', 'partly in the row', 'in the row', 'in the row, dense',
    'raw tail'];

  function make(tag, text, attributes = {}) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }
  function line(table, cells, header) {
    const row = table.appendChild(make('tr'));
    for (const cell of cells) {
      const box = row.appendChild(make(header ? 'th' : 'td'));
      box.append(cell instanceof Node ? cell : String(cell));
    }
    return row;
  }
  const shown = x => typeof x === 'number' && !Number.isInteger(x) ? x.toPrecision(6) : String(x);

  // What is known of a row beside the image.
  const details = new Map(data.details.map(d => {
    const rank = new Map(d.ranked.map((group, i) => [group, i]));
    return [d.row, {...d, rank, held: new Set(d.entries)}];
  }));
  const drawn = new Map(image.rows.map((row, i) => [row, i]));
  const count = image.rows.length;

  function head() {
    document.title = `Seriatim: ${report.dump}`;
    at('title').textContent = `Rows of ${report.engine || report.dump}`;
    at('verdict').textContent = report.conforms ? `Conforms: ${report.rows} rows judged.`
      : `Does not conform: ${report.faulty_rows} of ${report.rows} rows are at fault.`;
    at('verdict').className = report.conforms ? 'good' : 'bad';
    const facts = {'dump': report.dump, 'against': report.against, 'rule': report.rule,
      'group': `${report.group_tokens} tokens`, 'budget': `${report.budget_tokens} tokens`,
      'anchor': report.anchor, 'margin': report.margin, 'near': `${report.near_rows} rows`,
      'drawn': count < report.rows ? `${count} of ${report.rows} rows` : `all ${count} rows`,
      'scores of': `${details.size} rows are in this page`};
    for (const [name, value] of Object.entries(facts)) {
      if (value !== null && value !== '') at('facts').append(make('dt', name), make('dd', String(value)));
    }
    CELLS.forEach((name, i) => {
      if (i === 0) return;
      const key = make('span', undefined, {class: 'key'});
      key.style.background = image.palette[i];
      at('legend').append(key, document.createTextNode(name));
    });
    const tokens = `${image.tokens_per_column} token${image.tokens_per_column > 1 ? 's' : ''}`;
    at('legend').append(document.createTextNode(`; a column is ${tokens}.`));
  }

  // Tables of verdicts, and the marks on the image that belong to them.
  function verdicts() {
    line(at('promises'), ['promise', 'rows judged', 'rows at fault', ''], true);
    for (const [name, c] of Object.entries(report.counts)) {
      const row = line(at('promises'), [name, c.judged, c.faults, c.not_judged ? `not judged: ${c.not_judged}` : '']);
      if (c.faults) row.className = 'bad';
    }
    line(at('findings'), ['row', 'promise', 'entry', 'what', 'score', 'other', 'margin'], true);
    report.findings.forEach((f, i) => {
      const button = make('button', String(f.row),
        {class: 'row', type: 'button', 'aria-label': `Show row ${f.row}, ${f.promise}`});
      button.addEventListener('click', () => choose(f.row, i));
      const score = 'score' in f ? [shown(f.score), shown(f.other_score), shown(f.margin)] : ['', '', ''];
      line(at('findings'), [button, f.promise, f.entry < 0 ? '' : f.entry, f.what, ...score]).id = `finding-${i}`;
      mark(f, i);
    });
    if (report.findings.length === 0) at('findings').append(make('tr', 'none'));
  }
  function columnOf(row, token) {
    const run = token - report.anchor;
    return token < 0 || run < 0 || run >= image.visible[drawn.get(row)] ? 0 : Math.floor(run / image.tokens_per_column);
  }
  function mark(finding, i) {
    if (!drawn.has(finding.row)) return;
    const token = finding.group >= 0 && report.unit === 'group' ? report.anchor + finding.group * report.group_tokens
      : finding.token;
    const button = make('button', undefined, {class: 'mark', type: 'button', 'data-row': finding.row,
      'data-promise': finding.promise,
      'aria-label': `${finding.promise} in row ${finding.row}: ${finding.what}`,
      title: `${finding.promise}: ${finding.what}`});
    button.style.left = `${(columnOf(finding.row, token) + 0.5) / image.columns * 100}%`;
    button.style.top = `${(drawn.get(finding.row) + 0.5) / count * 100}%`;
    button.addEventListener('click', () => choose(finding.row, i));
    at('marks').append(button);
  }

  // The cursor over the image.
  let cursor = {i: 0, column: 0};
  function describe(i, column) {
    const row = image.rows[i];
    const visible = image.visible[i];
    const first = column * image.tokens_per_column;
    const last = Math.min(first + image.tokens_per_column, visible) - 1;
    let text = `Row ${row}: ${visible} visible tokens, ${image.tokens[i]} in the row, ` +
      `the earliest ${image.farthest[i]} back. `;
    if (first >= visible) return text + 'Here: later than the query.';
    const group = Math.floor(first / report.group_tokens);
    text += `Token ${report.anchor + first}${last > first ? ` to ${report.anchor + last}` : ''}, ` +
      `group ${group}: ${CELLS[cells(i, column)]}`;
    const detail = details.get(row);
    if (detail && detail.ranked.length) {
      const rank = detail.rank.get(group);
      text += rank === undefined ? `, ranked below ${detail.ranked.length}`
        : `, score ${shown(detail.scores[rank])}, rank ${rank + 1}`;
    }
    return text + '.';
  }
  let pixels = null;  // read back from the image, which the browser has decoded anyway
  function cells(i, column) {
    if (!pixels) {
      const canvas = document.createElement('canvas');
      canvas.width = image.columns;
      canvas.height = count;
      const context = canvas.getContext('2d');
      context.drawImage(at('image'), 0, 0);
      pixels = context.getImageData(0, 0, image.columns, count).data;
    }
    const p = 4 * (i * image.columns + column);
    if (pixels[p + 3] === 0) return 0;
    const colour = '#' + [0, 1, 2].map(k => pixels[p + k].toString(16).padStart(2, '0')).join('');
    return Math.max(image.palette.indexOf(colour), 0);
  }
  function point(i, column, scroll) {
    cursor = {i: Math.min(Math.max(i, 0), count - 1), column: Math.min(Math.max(column, 0), image.columns - 1)};
    const box = at('cursor');
    box.hidden = false;
    box.style.left = `${cursor.column / image.columns * 100}%`;
    box.style.width = `${100 / image.columns}%`;
    box.style.top = `${cursor.i / count * 100}%`;
    box.style.height = `${at('image').clientHeight / count}px`;
    box.style.top = `${cursor.i / count * at('image').clientHeight}px`;
    if (scroll) box.scrollIntoView({block: 'nearest'});
    at('readout').textContent = describe(cursor.i, cursor.column);
  }
  function picture() {
    const picture = at('picture');
    at('image').src = image.png;
    const height = Math.max(count, Math.min(count * 8, 480));
    at('image').style.height = `${height}px`;
    at('marks').style.height = `${height}px`;
    at('image').alt = `${count} queries down, ${image.columns} columns of ${image.tokens_per_column} tokens across; ` +
      `${report.findings.length} findings are marked. The tables below say the same in words.`;
    const first = image.visible.findIndex(n => n >= report.budget_tokens + report.group_tokens);
    if (first >= 0) {
      at('edge-row').hidden = false;
      at('edge-row').style.top = `${first / count * height}px`;
      at('edge-row').append(make('span',
        `from ${report.budget_tokens + report.group_tokens} visible tokens on the budget binds`));
    }
    const place = event => {
      const box = at('image').getBoundingClientRect();
      point(Math.floor((event.clientY - box.top) / box.height * count),
        Math.floor((event.clientX - box.left) / box.width * image.columns));
    };
    picture.addEventListener('mousemove', place);
    picture.addEventListener('click',
      event => { if (!event.target.classList.contains('mark')) { place(event); choose(image.rows[cursor.i], -1); } });
    picture.addEventListener('focus', () => point(cursor.i, cursor.column));
    picture.addEventListener('keydown', event => {
      if (event.target !== picture) return;
      const lastVisible = Math.floor(Math.max(image.visible[cursor.i] - 1, 0) / image.tokens_per_column);
      const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-32, 0],
        PageDown: [32, 0], Home: [0, -cursor.column], End: [0, lastVisible - cursor.column]};
      if (event.key === 'Enter') choose(image.rows[cursor.i], -1);
      else if (event.key in moves) point(cursor.i + moves[event.key][0], cursor.column + moves[event.key][1], true);
      else return;
      event.preventDefault();
    });
  }

  // One row: the scores by rank, and the cut.
  let scoreChart = null;
  function choose(row, finding) {
    document.querySelectorAll('.chosen').forEach(e => e.classList.remove('chosen'));
    if (finding >= 0) {
      at(`finding-${finding}`).classList.add('chosen');
      at(`finding-${finding}`).scrollIntoView({block: 'nearest'});
      document.querySelectorAll('.mark').forEach(m => {
        if (Number(m.dataset.row) === row) m.classList.add('chosen');
      });
    }
    if (drawn.has(row)) {
      const f = report.findings[finding];
      point(drawn.get(row), f ? columnOf(row, f.token) : cursor.column, true);
    }
    showRow(row);
  }
  function showRow(row) {
    const detail = details.get(row);
    const select = at('row-select');
    if (detail) select.value = String(row);
    at('row-heading').textContent = `Row ${row}`;
    at('row-facts').textContent = detail ? `${detail.entries.length} entries, ${detail.visible} visible tokens`
      : 'its scores are not in this page';
    at('score-table').replaceChildren();
    if (scoreChart) scoreChart.destroy();
    scoreChart = null;
    if (!detail || !detail.ranked.length) {
      at('score-chart').setAttribute('aria-label', 'no scores');
      return;
    }
    const kept = Math.min(Math.floor(report.budget_tokens / report.group_tokens), detail.ranked.length);
    const cut = detail.scores[kept - 1];
    const holds = group => report.unit === 'group' ? detail.held.has(group)
      : detail.held.has(report.anchor + group * report.group_tokens);
    const tied = x => x === cut;
    const near = x => Math.abs(x - cut) <= report.margin * Math.max(Math.abs(x), Math.abs(cut));
    const points = detail.ranked.map((group, i) => ({x: i + 1, y: detail.scores[i], group}));
    const finite = points.filter(p => Number.isFinite(p.y));
    const set = (label, keep, color, style, radius) => ({label, data: finite.filter(keep), borderColor: color,
      backgroundColor: color, pointStyle: style, radius, showLine: false});
    const datasets = [
      set('in the row', p => holds(p.group) && !tied(p.y), css('--good'), 'circle', 2),
      set('left out', p => !holds(p.group) && !tied(p.y), css('--soft'), 'crossRot', 3),
      set('at the cut, in the row', p => holds(p.group) && tied(p.y), css('--mark'), 'circle', 4),
      set('at the cut, left out', p => !holds(p.group) && tied(p.y), css('--mark'), 'crossRot', 5),
      {label: `the cut, ${shown(cut)}`, data: [{x: 1, y: cut}, {x: points.length, y: cut}], borderColor: css('--near'),
        borderDash: [6, 4], borderWidth: 1, radius: 0, showLine: true, pointStyle: 'line'}];
    for (const side of report.margin > 0 && Number.isFinite(cut) && cut !== 0 ? [1, -1] : []) {
      const y = cut + side * report.margin * Math.abs(cut);
      datasets.push({label: `the margin, ${shown(y)}`, data: [{x: 1, y}, {x: points.length, y}],
        borderColor: css('--near'), borderDash: [1, 3], borderWidth: 1, radius: 0, showLine: true, pointStyle: 'line'});
    }
    const ties = points.filter(p => tied(p.y)).length;
    at('score-chart').setAttribute('aria-label',
      `Scores of row ${row} by rank: ${kept} groups fit the budget, the cut is ${shown(cut)}, ` +
      `${ties} groups score exactly that, ` +
      `${points.filter(p => near(p.y)).length} lie within the margin ${report.margin}.`);
    scoreChart = chart('score-chart', datasets, 'rank', 'score',
      item => item.raw.group === undefined ? ''
        : `group ${item.raw.group}, token ${report.anchor + item.raw.group * report.group_tokens}: ` +
          `score ${shown(item.raw.y)}, rank ${item.raw.x}`);
    line(at('score-table'), ['rank', 'group', 'token', 'score', 'in the row'], true);
    points.slice(Math.max(kept - 12, 0), kept + 12).forEach(p => line(at('score-table'),
      [p.x, p.group, report.anchor + p.group * report.group_tokens, shown(p.y), holds(p.group) ? 'yes' : 'no']));
  }

  function chart(id, datasets, x, y, label) {
    Chart.defaults.color = css('--ink');
    Chart.defaults.borderColor = css('--line');
    const options = {animation: false, maintainAspectRatio: false, parsing: false, normalized: true,
      interaction: {mode: 'nearest', intersect: false},
      scales: {x: {type: 'linear', title: {display: true, text: x}}, y: {title: {display: true, text: y}}},
      plugins: {legend: {labels: {usePointStyle: true}}, tooltip: {callbacks: {label}}}};
    return new Chart(at(id), {type: 'scatter', data: {datasets}, options});
  }
  function overview() {
    const curve = (label, values, color) => ({label,
      data: values.map((y, i) => ({x: image.rows[i], y})).filter(p => p.y >= 0), borderColor: color,
      backgroundColor: color, showLine: true, borderWidth: 1, radius: count > 200 ? 0 : 2});
    chart('reach-chart', [curve('earliest token', image.farthest, css('--mark')),
      curve('median token', image.middle, css('--good'))], 'row', 'tokens back',
      item => `row ${item.raw.x}: ${item.raw.y} back`);
    at('reach-chart').setAttribute('aria-label',
      `Tokens back to the earliest and the median entry of every row; the farthest is ${Math.max(...image.farthest)}.`);
    chart('overlap-chart', [curve('part of the row that the row before has', image.overlap, css('--good'))], 'row',
      'part', item => `row ${item.raw.x}: ${(item.raw.y * 100).toFixed(1)} %`);
    const overlaps = image.overlap.filter(x => x >= 0);
    const percent = part => (part * 100).toFixed(0);
    at('overlap-chart').setAttribute('aria-label', overlaps.length
      ? `Overlap with the row before, from ${percent(Math.min(...overlaps))} ` +
        `to ${percent(Math.max(...overlaps))} percent.`
      : 'one row alone');
    line(at('row-table'), ['row', 'visible', 'in the row', 'earliest back', 'median back', 'overlap'], true);
    const step = Math.ceil(count / 64);
    for (let i = 0; i < count; i += step) {
      line(at('row-table'), [image.rows[i], image.visible[i], image.tokens[i], image.farthest[i], image.middle[i],
        image.overlap[i] < 0 ? '' : image.overlap[i].toFixed(3)]);
    }
  }

  head();
  picture();
  verdicts();
  for (const row of details.keys()) at('row-select').append(make('option', String(row), {value: String(row)}));
  at('row-select').addEventListener('change', event => choose(Number(event.target.value), -1));
  overview();
  const first = report.findings.length ? report.findings[0].row : [...details.keys()].pop();
  if (first !== undefined) showRow(first);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => location.reload());
  document.documentElement.dataset.ready = 'yes';
})();
