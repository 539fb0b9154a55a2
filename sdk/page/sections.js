// The sections of the page, from the results down to the configuration.
function section(title, note, ...children) {
  const node = el('section', {}, el('h2', {}, title), note ? el('p', {class: 'note'}, note) : null, ...children);
  page.append(node);
  return node;
}
function tableOf(head, rows, numbers, extra = []) {
  const classOf = i => [numbers.includes(i) ? 'num' : i === 0 ? 'run' : '', extra.includes(i) ? 'extra' : ''].join(' ').trim() || null;
  return el('div', {class: 'scroll'}, el('table', {},
    el('thead', {}, el('tr', {}, head.map((h, i) => el('th', {scope: 'col', class: classOf(i)}, h)))),
    el('tbody', {}, rows.map(row => el('tr', {}, row.map((cell, i) => el('td', {class: classOf(i)}, cell)))))));
}
const swatch = i => el('span', {class: 'swatch', style: `background:${color(i)}`});
const card = (...children) => el('div', {class: 'card'}, ...children);
const numbered = runs.map((r, i) => [r, i]);
const line = (r, i, more) => ({name: label(r.name), color: color(i), dash: dashes[i % 8], x: r.step, ...more});
const named = (run, i) => [swatch(i), ...run.name.split(/(?<=[:,])/).flatMap(part => [part, el('wbr')])];

// ---- the page ------------------------------------------------------------------------------
// The loss that runs are compared by: of the validation where all have one, else of the training.
const byValidation = runs.every(r => isNumber(r.validation_loss)) || !!data.corpus;
const ended = run => byValidation ? run.validation_loss : run.train_loss;
const base = runs.find(r => r.name === 'fp32' && isNumber(ended(r)));
const difference = run => base && isNumber(ended(run)) ? (ended(run) / ended(base) - 1) * 100 : null;
const fp8 = runs.filter(r => r.backend && r.backend !== 'host' && difference(r) !== null);
const worst = fp8.reduce((a, b) => !a || Math.abs(difference(b)) > Math.abs(difference(a)) ? b : a, null);

let title = data.title;
if (worst) {
  title = fp8.length === 1
    ? `FP8 ends ${Math.abs(difference(worst)).toFixed(2)} % ${difference(worst) >= 0 ? 'above' : 'below'} fp32`
    : `${fp8.length} FP8 runs end within ${Math.abs(difference(worst)).toFixed(2)} % of fp32`;
}
page.append(el('header', {},
  el('p', {class: 'kicker'}, data.kicker),
  el('h1', {}, title),
  el('p', {class: 'lede'}, data.lede),
  data.interrupted ? el('p', {class: 'banner'}, 'The training was interrupted: this page shows what was done until then.') : null));

const withMemory = runs.every(r => r.memory);
section('Results', `${data.loss_unit ? `Losses in ${data.loss_unit}; the` : 'The'} train loss is the mean of the last 20 values. Differences are of the ${byValidation ? 'validation' : 'train'} loss, relative to the run fp32.`
  + (withMemory ? ' Bytes: weights, gradients and optimizer states.' : ''),
  card(tableOf(['Run', 'Backend', 'Recipe', 'Train loss', 'Validation', 'To fp32', 'Tokens/s', ...(withMemory ? ['Bytes/param'] : [])],
    runs.map((r, i) => [named(r, i), r.backend || '–', r.recipe || '–', isNumber(r.train_loss) ? fixed(r.train_loss, 4) : '–',
      isNumber(r.validation_loss) ? fixed(r.validation_loss, 4) : data.corpus ? 'stopped early' : '–',
      difference(r) === null ? '–' : r === base ? '0' : signed(difference(r), 2) + ' %',
      isNumber(r.tokens_per_s) ? grouped(r.tokens_per_s) : '–',
      ...(withMemory ? [bytesText(trained(r.memory.ranks[r.memory.fullest].model))] : [])]), [3, 4, 5, 6, 7], [1, 2, 3, 6, 7])));

const lossCard = card();
section('Loss', 'Lines: training loss, smoothed. Circles: validation loss. Point at the chart for numbers.', lossCard);
chart(lossCard, {
  height: 400, unit: `loss${data.loss_unit ? ' in ' + data.loss_unit : ''} against step`, detail: v => fixed(v, 4),
  reference: data.corpus ? {value: data.corpus.entropy, label: 'unigram entropy'} : undefined,
  series: numbered.map(([r, i]) => line(r, i, {y: smooth(r.loss), marks: r.validation}))});

skippedSection();

if (base && runs.length > 1) {
  const other = card();
  section('Difference to fp32', 'Smoothed training loss of each run relative to the fp32 run at the same step, in percent. With the same batches, what is left is the arithmetic.', other);
  const reference = smooth(base.loss);
  chart(other, {
    height: 300, unit: 'difference of the training loss to fp32 in percent', detail: v => signed(v, 2) + ' %',
    reference: {value: 0, label: '', inside: true},
    series: numbered.filter(([r]) => r !== base).map(([r, i]) => line(r, i,
      {width: 1.6, y: smooth(r.loss).map((v, k) => v === null || !reference[k] ? null : (v / reference[k] - 1) * 100)}))});
}

for (const run of runs) {
  const kinds = [['amax', 'x', 'amax of x'], ['scale', 'x', 'scale of x'], ['amax', 'dy', 'amax of dy'], ['scale', 'dy', 'scale of dy']];
  const present = kinds.filter(([kind, tensor]) => Object.keys(run[kind] || {}).some(k => k.startsWith(tensor + '/')));
  if (!present.length) continue;
  const grid = el('div', {class: 'two'});
  const scaled = present.some(([kind]) => kind === 'scale');
  section(`${scaled ? 'amax and scale' : 'amax'} in ${run.name}`, scaled
    ? 'Largest absolute value of each step and the scale that the step multiplied by before the cast, on logarithmic axes. The first step is left out: no amax is known before it, so its scale is 1.'
    : 'Largest absolute value of each step, on logarithmic axes. This recipe derives the scale from it within the same cast.', grid);
  for (const [kind, tensor, heading] of present) {
    const place = card(el('h3', {}, heading));
    grid.append(place);
    const keys = Object.keys(run[kind]).filter(k => k.startsWith(tensor + '/')).sort();
    const recorded = k => run.step.map((s, i) => [s, run[kind][k][i]]).slice(1).filter(p => isNumber(p[1]));
    chart(place, {height: 230, log: true, unit: heading,
      series: keys.map((k, i) => ({name: k.slice(tensor.length + 1), color: color(i + 2), width: 1.4, x: recorded(k).map(p => p[0]), y: recorded(k).map(p => p[1])}))});
  }
}

for (const run of runs) castsSection(run);

const otherNames = [...new Set(runs.flatMap(r => Object.keys(r.others || {})))];
if (otherNames.length) {
  const grid = el('div', {class: 'two'});
  section('Other values', 'What else the program logged.', grid);
  for (const name of otherNames) {
    const place = card(el('h3', {}, name));
    grid.append(place);
    const logged = numbered.filter(([r]) => name in (r.others || {}));
    chart(place, {height: 190, unit: name + ' against step', series: logged.map(([r, i]) => line(r, i,
      {width: 1.4, x: r.others[name].map(p => p[0]), y: r.others[name].map(p => p[1])}))});
  }
}

const reducing = data.ranks !== 1 ? numbered.filter(([r]) => r.reduce && ('prescale' in r.reduce || 'saturated' in r.reduce)) : [];
if (reducing.length) {
  const grid = el('div', {class: 'two'});
  section('Gradient reduction', 'Before ranks add their FP8 gradients they multiply by the pre-scale, so that the sum fits into the format. The backend lowers it when too many values saturate, else it grows.', grid);
  for (const [kind, heading, log] of [['prescale', 'Pre-scale', true], ['saturated', 'Values that saturated', false]]) {
    const present = reducing.filter(([r]) => kind in r.reduce);
    if (!present.length) continue;
    const place = card(el('h3', {}, heading));
    grid.append(place);
    chart(place, {height: 190, log, unit: heading, series: present.map(([r, i]) => line(r, i, {width: 1.4, y: r.reduce[kind]}))});
  }
}

if (runs.length && runs.every(r => r.placements)) {
  const layers = runs[0].placements.map(p => p.layer);
  section('Placement', 'Where each linear layer ran. A layer that is skipped, or that a backend declines, keeps the host’s own product.',
    card(tableOf(['Layer', ...runs.map(r => r.name)],
      layers.map((layer, k) => [layer, ...runs.map(r => {
        const p = r.placements[k];
        return el('span', {title: p.reason, class: p.where.startsWith('host') ? 'muted' : null}, p.where);
      })]), [])));
}

memorySection();
const roles = [...new Set(runs.flatMap(r => Object.keys(r.bytes || {})))].sort();
if (roles.length) {
  const owners = numbered.filter(([r]) => Object.keys(r.bytes || {}).length);
  section('Memory in slots', 'Bytes that the program allocated for the backend, by the role of the slot' + (data.ranks > 1 ? ', all ranks together' : '') + '. '
    + 'Tensors that a backend leaves to the program, such as the weights of te or the biases of msamp, are not in slots: they count above only.',
    card(tableOf(['Run', ...roles], owners.map(([r, i]) => [named(r, i), ...roles.map(role => role in r.bytes ? grouped(r.bytes[role]) : '–')]), roles.map((_, i) => i + 1))));
}

const reported = runs.filter(r => r.report);
if (reported.length) {
  section('Negotiation', 'What Octavo was asked, what it tried and what it chose.',
    card(reported.map((r, i) => el('details', i === 0 ? {open: ''} : {}, el('summary', {}, r.name), el('pre', {}, r.report)))));
}
const sampled = runs.filter(r => r.sample);
if (sampled.length) {
  const last = sampled[sampled.length - 1];
  section('Sample', `${last.name} continues “${data.prompt}”.`, card(el('pre', {class: 'text'}, data.prompt + last.sample)));
}
const fileList = names => names.map(n => n.split('/').pop()).join(', ');
const corpus = data.corpus ? [
  ['training text', `${grouped(data.corpus.train_bytes)} bytes: ${fileList(data.corpus.train_files)}`],
  ['validation text', `${grouped(data.corpus.validation_bytes)} bytes: ${fileList(data.corpus.validation_files)}`],
  ['split', data.corpus.split]] : [];
section('Configuration', null, card(el('dl', {}, [...data.configuration, ...corpus].flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, String(v))]))));
