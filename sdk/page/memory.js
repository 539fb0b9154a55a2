// Bytes per parameter as stacked bars: one bar a run, one segment a purpose.
const parts = data.memory_parts || [];
const extraParts = ['weight_cache', 'FP8 state'];  // not weights, gradients or optimizer states
const perParameter = use => use.bytes.map(b => b / use.parameters);
const trained = use => perParameter(use).reduce((sum, b, i) => sum + (extraParts.includes(parts[i]) ? 0 : b), 0);
const beside = use => perParameter(use).reduce((sum, b, i) => sum + (extraParts.includes(parts[i]) ? b : 0), 0);
const bytesText = x => x >= 100 ? grouped(x) : fixed(x, 2);

// bars: {name, use}. The number after a bar: weights, gradients and states + the rest.
function stackedBars(place, bars) {
  const most = Math.max(...bars.map(bar => trained(bar.use) + beside(bar.use)));
  const present = parts.map((name, i) => [name, i]).filter(([, i]) => bars.some(bar => bar.use.bytes[i] > 0));
  const segment = (bar, name, i) => {
    const bytes = perParameter(bar.use)[i], text = `${name} ${short(Number(bytes.toFixed(2)))}`;
    return el('span', {style: `width:${bytes / most * 100}%;background:var(--m${i})`, title: `${bar.name}: ${text} bytes per parameter`}, text);
  };
  place.append(...bars.map(bar => el('div', {class: 'bar'}, el('b', {}, bar.name),
      el('div', {}, present.map(([name, i]) => segment(bar, name, i))),
      el('span', {}, el('b', {}, bytesText(trained(bar.use))), beside(bar.use) >= 0.005 ? ' + ' + bytesText(beside(bar.use)) : null))),
    el('p', {class: 'legend'}, present.map(([name, i]) => el('span', {}, el('span', {class: 'box', style: `background:var(--m${i})`}), name))));
}

function memorySection() {
  if (!runs.length || !runs.every(r => r.memory)) return;
  const several = data.ranks > 1;
  const headed = heading => {
    const node = card(el('h3', {}, heading));
    place.append(node);
    return node;
  };
  const place = section('Bytes per parameter', 'What training holds from step to step, divided by the number of parameters: the program’s own tensors and the backend’s slots. '
    + 'At the end of a bar: weights, gradients and optimizer states, + weight caches, scales and histories. Activations and workspaces are not counted.'
    + (several ? ` Each of the ${data.ranks} ranks has a model of its own; the upper bars show the rank that holds most.` : ''));
  const of = pick => runs.map(r => ({name: label(r.name), use: pick(r.memory)}));
  stackedBars(headed('Whole model'), of(m => m.ranks[m.fullest].model));
  stackedBars(headed('Weights of linear layers alone'), of(m => m.ranks[m.fullest].linear));
  if (!several) return;
  stackedBars(headed(`Whole model, all ${data.ranks} ranks together`), of(m => m.sum.model));
  place.append(card(el('details', {}, el('summary', {}, 'Weights, gradients and states of every rank'),
    tableOf(['Rank', ...runs.map(r => r.name)], runs[0].memory.ranks.map((_, rank) =>
      [String(rank), ...runs.map(r => bytesText(trained(r.memory.ranks[rank].model)))]), runs.map((_, i) => i + 1)))));
}
