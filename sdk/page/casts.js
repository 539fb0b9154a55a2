// The sections about steps that were not taken and about how well casts keep their values.
const count = n => isNumber(n) ? grouped(n) : '–';
function skippedSection() {
  if (!runs.some(r => isNumber(r.skipped_steps))) return;
  const counted = numbered.filter(([r]) => r.skipped_steps || r.nonfinite_steps || r.injected);
  const heading = 'Skipped steps';
  if (!counted.length) {
    section(heading, 'None: no step was skipped.');
    return;
  }
  section(heading, 'A step with a gradient that is infinite or NaN changes no weight. A cast to FP8 saturates, so such a gradient is found by the flag that the cast sets, not by looking at results. '
    + 'Injected: infinite gradients of --inject-inf; two can fall into one step.',
    card(tableOf(['Run', 'Steps', 'Not finite', 'Skipped', 'Injected'],
      counted.map(([r, i]) => [named(r, i), grouped(r.step.length), count(r.nonfinite_steps), count(r.skipped_steps), count(r.injected)]), [1, 2, 3, 4])));
}

const operandNames = {x: 'x, inputs', w: 'w, weights', dy: 'dy, gradients'};
const operandsOf = run => !run.casts ? [] : Object.keys(operandNames).filter(o => o in run.casts.operands)
  .concat(Object.keys(run.casts.operands).filter(o => !(o in operandNames)).sort());
const operandColor = operand => color({x: 3, w: 2, dy: 4}[operand] ?? 5);

function castsSection(run) {
  const operands = operandsOf(run);
  if (!operands.length) return;
  const of = operand => run.casts.operands[operand];
  const table = card(el('h3', {}, 'By operand'),
    tableOf(['Operand', 'Worst ratio', 'In layer', 'At step', 'Saturated', 'Became 0', 'Largest amax'],
      operands.map(o => [[el('span', {class: 'swatch', style: `background:${operandColor(o)}`}), operandNames[o] || o],
        of(o).worst ? fixed(of(o).worst.db, 1) + ' dB' : '–', of(o).worst ? of(o).worst.tensor : '–', of(o).worst ? grouped(of(o).worst.step) : '–',
        count(of(o).saturated), count(of(o).underflow), isNumber(of(o).amax) ? short(of(o).amax) : '–']), [1, 3, 4, 5, 6], [3, 6]));
  const plot = card(el('h3', {}, 'Worst ratio of each sampled step'));
  section(`Casts in ${run.name}`, `How well codes represent values, in ${grouped(run.casts.step.length)} sampled steps: the ratio of the squares of a tensor to those of its rounding errors, in decibels, of the worst layer. `
    + 'More is better; a cast that neither saturates nor underflows has about 31 dB in E4M3 and 25 dB in E5M2. Counts are of elements, in all sampled steps.', table, plot);
  chart(plot, {height: 210, unit: 'worst signal-to-noise ratio in decibels against step', detail: v => fixed(v, 1) + ' dB',
    series: operands.map(o => ({name: o, color: operandColor(o), width: 1.6, x: run.casts.step, y: of(o).sqnr_db,
      marks: run.casts.step.map((s, i) => [s, of(o).sqnr_db[i]]).filter(p => typeof p[1] === 'number')}))});
}
