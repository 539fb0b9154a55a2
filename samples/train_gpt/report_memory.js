// Bytes per parameter as stacked bars: one bar a run, one segment a purpose.
const parts = data.memory_parts;
const extraParts = ['weight_cache', 'FP8 state'];  // beside weights, gradients and optimizer states
const perParameter = use => use.bytes.map(b => b / use.parameters);
const trained = use => perParameter(use).reduce((sum, b, i) => sum + (extraParts.includes(parts[i]) ? 0 : b), 0);
const beside = use => perParameter(use).reduce((sum, b, i) => sum + (extraParts.includes(parts[i]) ? b : 0), 0);
const bytesText = x => x >= 100 ? grouped(x) : fixed(x, 2);

// bars: {name, use}. The number at the end: weights, gradients and states + what lies beside them.
function stackedBars(place, bars) {
  const holder = el('div');
  place.append(holder);
  const present = parts.map((name, i) => [name, i]).filter(([, i]) => bars.some(bar => bar.use.bytes[i] > 0));
  place.append(el('p', {class: 'legend'}, present.map(([name, i]) =>
    el('span', {}, el('span', {class: 'box', style: `background:var(--m${i})`}), name))));
  function draw() {
    const width = Math.max(280, holder.clientWidth);
    const narrow = width < 560;
    const left = narrow ? 0 : Math.min(210, Math.max(...bars.map(b => b.name.length)) * 7.4 + 16);
    const right = 96, step = narrow ? 50 : 38, thick = 24, top = narrow ? 20 : 6;
    const most = Math.max(...bars.map(b => trained(b.use) + beside(b.use)));
    const svg = el('svg', {viewBox: `0 0 ${width} ${bars.length * step + 4}`, role: 'img', 'aria-label': 'bytes per parameter of each run, by purpose'});
    bars.forEach((bar, row) => {
      const y = row * step + top;
      svg.append(el('text', {class: 'label name', x: 0, y: narrow ? y - 6 : y + thick / 2 + 4}, bar.name));
      let x = left;
      perParameter(bar.use).forEach((bytes, i) => {
        const w = bytes / most * (width - left - right);
        if (w <= 0) return;
        const box = el('rect', {x: x.toFixed(2), y, width: Math.max(w - (w > 3 ? 1 : 0), 0.5).toFixed(2), height: thick, style: `fill:var(--m${i})`},
          el('title', {}, `${bar.name}: ${parts[i]} ${bytesText(bytes)} bytes per parameter`));
        svg.append(box);
        const full = `${parts[i]} ${short(Number(bytes.toFixed(2)))}`, number = short(Number(bytes.toFixed(2)));
        const shown = w > full.length * 6.6 + 8 ? full : w > number.length * 7 + 6 ? number : null;
        if (shown) svg.append(el('text', {class: 'inside', x: (x + w / 2).toFixed(1), y: y + thick / 2 + 4, 'text-anchor': 'middle'}, shown));
        x += w;
      });
      svg.append(el('text', {class: 'label total', x: x + 8, y: y + thick / 2 + 4}, bytesText(trained(bar.use))));
      if (beside(bar.use) >= 0.005) {
        svg.append(el('text', {x: x + 14 + bytesText(trained(bar.use)).length * 7.3, y: y + thick / 2 + 4}, '+ ' + bytesText(beside(bar.use))));
      }
    });
    holder.replaceChildren(svg);
  }
  draw();
  let drawn = holder.clientWidth;
  new ResizeObserver(() => { if (holder.clientWidth !== drawn) { drawn = holder.clientWidth; draw(); } }).observe(holder);
}

function memorySection() {
  if (!runs.length) return;
  const several = data.ranks > 1;
  const card = heading => {
    const node = el('div', {class: 'card'}, el('h3', {}, heading));
    place.append(node);
    return node;
  };
  const place = section('Bytes per parameter', 'What training holds from step to step, divided by the number of parameters: the program’s own tensors and the backend’s slots. '
    + 'At the end of a bar: weights, gradients and optimizer states, + weight caches, scales and histories. Activations and workspaces are not counted.'
    + (several ? ` Each of the ${data.ranks} ranks has a model of its own; the upper bars show the rank that holds most.` : ''));
  const of = pick => runs.map(r => ({name: label(r.name), use: pick(r.memory)}));
  stackedBars(card('Whole model'), of(m => m.ranks[m.fullest].model));
  stackedBars(card('Weights of linear layers alone'), of(m => m.ranks[m.fullest].linear));
  if (!several) return;
  stackedBars(card(`Whole model, all ${data.ranks} ranks together`), of(m => m.sum.model));
  place.append(el('div', {class: 'card'}, el('details', {}, el('summary', {}, 'Weights, gradients and states of every rank'),
    tableOf(['Rank', ...runs.map(r => r.name)], runs[0].memory.ranks.map((_, rank) =>
      [String(rank), ...runs.map(r => bytesText(trained(r.memory.ranks[rank].model)))]), runs.map((_, i) => i + 1)))));
}
