// Charts of the page: hand-made SVG.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const runs = data.runs;
const color = i => `var(--c${i % 8})`;
const dashes = ['', '', '', '', '6 5', '', '6 5', '2 4'];  // the same line twice shows both colours

// ---- small helpers -------------------------------------------------------------------------
function el(name, attributes, ...children) {
  const svg = ['svg', 'path', 'line', 'text', 'circle'].includes(name);
  const node = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter(c => c !== null && c !== undefined));
  return node;
}
const isNumber = x => typeof x === 'number' && Number.isFinite(x);
const fixed = (x, n) => Number.isFinite(x) ? x.toFixed(n).replace('-', '−') : '–';
const label = name => name.replace(/recipe=|opt_level=/, '');
const grouped = n => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ' ');
const signed = (x, n) => (x > 0 ? '+' : x < 0 ? '−' : '±') + Math.abs(x).toFixed(n);
const short = x => (x === 0 ? '0' : Math.abs(x) >= 1e4 || Math.abs(x) < 1e-3
  ? x.toExponential(1).replace('e+', 'e') : String(Number(x.toPrecision(3)))).replace(/-/g, '−');

// Mean over a fifteenth of the run: single batches are noisy.
function smooth(values) {
  const half = Math.max(1, Math.round(values.length / 30));
  return values.map((_, i) => {
    const part = values.slice(Math.max(0, i - half), i + half + 1).filter(v => v !== null);
    return part.length ? part.reduce((a, b) => a + b, 0) / part.length : null;
  });
}

function linearTicks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({length: last - first + 1}, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
const integerTicks = (low, high, count) => linearTicks(low, high, count).filter(Number.isInteger);
const powerLabel = v => v >= 1e3 || v < 0.1 ? `2^${Math.log2(v)}`.replace('-', '−') : short(v);

// ---- one chart -----------------------------------------------------------------------------
// series: {name, color, dash, x: [], y: [], marks: [[x, y]]}. The line below names them and gives their values.
function chart(place, {series, height, log, reference, detail, unit}) {
  const readout = el('p', {class: 'read'});
  const holder = el('div');
  place.append(holder, readout);
  function draw() {
    const width = Math.max(280, holder.clientWidth);
    const narrow = width < 560;
    const box = {l: 46, r: 50, t: 12, b: 34, w: width, h: narrow ? Math.min(height, 250) : height};
    const f = log ? Math.log2 : v => v;
    const points = series.flatMap(s => s.x.map((x, i) => [x, s.y[i]]).concat(s.marks || []))
      .filter(p => p[1] !== null && Number.isFinite(f(p[1])));
    if (!points.length) { holder.replaceChildren(el('p', {class: 'note'}, 'No values.')); return; }
    let low = Math.min(...points.map(p => p[1])), high = Math.max(...points.map(p => p[1]));
    if (reference !== undefined && reference.inside) { low = Math.min(low, reference.value); high = Math.max(high, reference.value); }
    if (log) { low = 2 ** Math.floor(Math.log2(low) - 0.1); high = 2 ** Math.ceil(Math.log2(high) + 0.1); }
    else { const pad = (high - low || Math.abs(high) || 1) * 0.06; low -= pad; high += pad; }
    const lastX = Math.max(...points.map(p => p[0])), firstX = Math.min(...points.map(p => p[0]));
    const X = x => box.l + (x - firstX) / ((lastX - firstX) || 1) * (box.w - box.l - box.r);
    const Y = y => box.t + (f(high) - f(y)) / (f(high) - f(low)) * (box.h - box.t - box.b);
    const svg = el('svg', {viewBox: `0 0 ${box.w} ${box.h}`, role: 'img', 'aria-label': unit});
    for (const tick of log ? integerTicks(Math.log2(low), Math.log2(high), 6).map(e => 2 ** e) : linearTicks(low, high, 5)) {
      svg.append(el('line', {class: 'grid', x1: box.l, x2: box.w - box.r, y1: Y(tick), y2: Y(tick)}),
        el('text', {x: box.l - 9, y: Y(tick) + 4, 'text-anchor': 'end'}, log ? powerLabel(tick) : short(tick)));
    }
    for (const tick of integerTicks(firstX, lastX, narrow ? 3 : 6)) {
      svg.append(el('text', {x: X(tick), y: box.h - box.b + 19, 'text-anchor': 'middle'}, grouped(tick)));
    }
    svg.append(el('line', {class: 'axis', x1: box.l, x2: box.w - box.r, y1: box.h - box.b, y2: box.h - box.b}),
      el('text', {x: box.w - box.r + 26, y: box.h - box.b + 19}, 'step'));
    if (reference && reference.value >= low && reference.value <= high) {
      svg.append(el('line', {class: 'reference', x1: box.l, x2: box.w - box.r, y1: Y(reference.value), y2: Y(reference.value)}),
        el('text', {x: box.w - box.r - 4, y: Y(reference.value) - 6, 'text-anchor': 'end'}, reference.label));
    }
    for (const s of series) {
      let path = '', pen = false;
      s.x.forEach((x, i) => {
        const fine = s.y[i] !== null && Number.isFinite(f(s.y[i]));
        if (fine) path += `${pen ? 'L' : 'M'}${X(x).toFixed(1)} ${Y(s.y[i]).toFixed(1)}`;
        pen = fine;
      });
      svg.append(el('path', {d: path, fill: 'none', stroke: s.color, 'stroke-width': s.width || 1.8, 'stroke-dasharray': s.dash || null,
        'stroke-linejoin': 'round', 'stroke-linecap': 'butt'}));
      for (const [x, y] of s.marks || []) {
        if (Number.isFinite(f(y))) svg.append(el('circle', {cx: X(x), cy: Y(y), r: 3.2, fill: 'var(--card)', stroke: s.color, 'stroke-width': 1.6}));
      }
    }
    const cursor = el('line', {class: 'cursor', y1: box.t, y2: box.h - box.b});
    svg.append(cursor);
    const show = event => {
      const bounds = svg.getBoundingClientRect();
      const at = (event.clientX - bounds.left) / bounds.width * box.w;
      const wanted = firstX + (at - box.l) / (box.w - box.l - box.r) * (lastX - firstX);
      const longestSeries = series.reduce((a, b) => b.x.length > a.x.length ? b : a);
      const nearest = longestSeries.x.reduce((a, b) => Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a);
      cursor.setAttribute('x1', X(nearest)); cursor.setAttribute('x2', X(nearest)); cursor.style.opacity = 1;
      read(nearest);
    };
    const read = step => readout.replaceChildren(el('span', {}, `step ${grouped(step)}`), ...series.map(s => {
      const value = s.y[s.x.indexOf(step)] ?? null;
      return el('span', {}, el('b', {style: `color:${s.color}`}, s.name), ' ' + (value === null ? '–' : (detail || short)(value)));
    }));
    read(lastX);
    svg.addEventListener('pointermove', show);
    svg.addEventListener('pointerdown', show);
    svg.addEventListener('pointerleave', () => { cursor.style.opacity = 0; read(lastX); });
    holder.replaceChildren(svg);
  }
  draw();
  let width = holder.clientWidth;
  new ResizeObserver(() => { if (holder.clientWidth !== width) { width = holder.clientWidth; draw(); } }).observe(holder);
}
