//! The model of one rank: two or three linears with one weight, experts of which ranks have different
//! ones, and one or two heads. Its calls are on two streams.

use crate::abi::*;
use crate::owned::{Parameter, SlotMemory};
use crate::rank::{Layer, Rank};
use crate::values::*;
use std::cell::Cell;
use std::rc::Rc;

const D: usize = 136;
pub const STEPS: usize = 9;
pub const SECOND_SEAL: usize = 3;
pub const INF_STEP: usize = 4;
pub const NAN_STEP: usize = 6;
/// Of each rank: the rows of its micro-batches, and its experts with theirs. An expert of both ranks
/// has other ids on them, and no rows on rank 1.
const ROWS: [[usize; 2]; 2] = [[21, 33], [16, 1]];
type Expert = (&'static str, [usize; 2]);
const EXPERTS: [[Expert; 2]; 2] = [
    [("expert.a", [5, 20]), ("expert.both", [7, 13])],
    [("expert.both", [0, 0]), ("expert.b", [9, 0])],
];

fn weight(seed: usize, rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols).map(|i| noise([seed, i, 0, 0]) * 1.6 / (cols as f32).sqrt()).collect()
}

pub unsafe fn first_seal(r: &mut Rank, rank: usize) {
    r.add_parameter("tied", D, (F32, F32), weight(1, D, D));
    for (name, _) in EXPERTS[rank] {
        let seed = name.bytes().map(usize::from).sum();
        r.add_parameter(name, D, (BF16, F32), weight(seed, D, D));
    }
    r.add_parameter("head", D, (BF16, BF16), weight(3, 24, D));
    for (name, weight) in [("proj1", "tied"), ("proj2", "tied"), ("head", "head")] {
        r.add_linear(name, weight, &[]);
    }
    for (name, _) in EXPERTS[rank] {
        r.add_linear(name, name, &[]);
    }
    r.seal();
    for (name, n) in [("proj1", D), ("head", 24)] {
        let initial = (0..n).map(|c| 0.1 * noise([7, n, c, 0])).collect();
        r.biases.push(Parameter::new(name, n, (F32, F32), initial));
    }
}
/// A third use of the tied weight, and a second head with options of its own; on rank 1 in another order.
pub unsafe fn second_seal(r: &mut Rank, rank: usize, options: &[OptionValue]) {
    if rank == 0 {
        r.add_linear("proj3", "tied", &[]);
    }
    r.add_parameter("extra", D, (F32, F32), weight(4, 40, D));
    r.add_linear("extra", "extra", options);
    if rank == 1 {
        r.add_linear("proj3", "tied", &[]);
    }
    r.seal();
}

/// Of a micro-batch: its loss, and a hash of its outputs and of the gradients of its activations.
#[derive(Default)]
pub struct Tally {
    pub loss: Cell<f64>,
    pub bits: Cell<u64>,
}
impl Tally {
    fn note(&self, t: &Tensor) {
        self.bits.set(fold(self.bits.get(), elements(t)));
    }
}
/// A micro-batch: the calls of its forward, in their order.
struct Batch {
    stream: usize,
    tally: Rc<Tally>,
    layers: Vec<Layer>,
}
pub struct Trainer {
    pub r: Rank,
    pub rank: usize,
}

impl Trainer {
    fn scratch(&mut self, rows: usize, cols: usize, gap: usize, dtype: u32) -> Tensor {
        let t = tensor(rows, cols, gap, dtype);
        self.r.scratch.push(t.data as *mut u8);
        t
    }
    fn queue(&mut self, stream: usize, work: impl FnOnce() + 'static) {
        self.r.streams.host(stream, work);
    }
    unsafe fn layer(&mut self, b: &mut Batch, name: &str, x: Tensor) -> Layer {
        let linear = self.r.linear(name);
        let n = self.r.parameters[self.r.linears[linear].weight as usize].value.rows as usize;
        let y = self.scratch(x.rows as usize, n, 0, F32);
        let dy = self.scratch(x.rows as usize, n, 3, F32);
        let saved = self.r.saved(linear, x.rows as usize);
        let bias = self.r.bias(name).map(|b| b.value);
        let layer = Layer { linear, x, y, dy, dx: None, saved, bias };
        self.r.forward(b.stream, &layer);
        let tally = b.tally.clone();
        self.queue(b.stream, move || tally.note(&y));
        b.layers.push(layer);
        layer
    }
    /// The gradient of a layer's input, in `dtype`.
    unsafe fn input_gradient(
        &mut self,
        b: &mut Batch,
        linear: usize,
        gap: usize,
        dtype: u32,
    ) -> Tensor {
        let i = b.layers.iter().position(|l| l.linear == linear).unwrap();
        let l = b.layers[i];
        let dx = self.scratch(l.x.rows as usize, l.x.cols as usize, gap, dtype);
        self.r.backward(b.stream, &l, false, [Some(dx), None, None]);
        let tally = b.tally.clone();
        self.queue(b.stream, move || tally.note(&dx));
        b.layers[i].dx = Some(dx);
        dx
    }
    fn sealed(&self, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().copied().filter(|n| self.r.linears.iter().any(|l| l.name == *n)).collect()
    }
    fn projections(&self) -> Vec<&'static str> {
        self.sealed(&["proj1", "proj2", "proj3"])
    }
    /// Forward, loss and the gradients of activations of a micro-batch, on its stream.
    unsafe fn activations(&mut self, step: usize, micro: usize, tally: &Rc<Tally>) -> Batch {
        let (rank, rows, s) = (self.rank, ROWS[self.rank][micro], micro);
        let x = self.scratch(rows, D, 5, F32);
        self.queue(s, move || {
            each(&x, |r, c| put(&x, r, c, noise([8, rank * 2 + micro, r, c])));
            if step == INF_STEP && rank == 1 && micro == 0 {
                put(&x, 2, 3, f32::INFINITY);
            }
        });
        let mut b = Batch { stream: s, tally: tally.clone(), layers: vec![] };
        let mut h = x;
        for name in self.projections() {
            let l = self.layer(&mut b, name, h);
            let out = self.scratch(rows, D, 0, if name == "proj1" { F32 } else { BF16 });
            self.queue(s, move || each(&out, |r, c| put(&out, r, c, get(&l.y, r, c).max(0.0))));
            h = out;
        }
        let mixed = self.scratch(rows, D, 0, F32);
        self.queue(s, move || each(&mixed, |r, c| put(&mixed, r, c, get(&h, r, c))));
        let mut begin = 0;
        let mut experts = vec![];
        for (name, counts) in EXPERTS[rank] {
            let end = begin + counts[micro];
            let l = self.layer(&mut b, name, rows_of(h, begin, end));
            self.queue(s, move || each(&l.y, |r, c| put(&mixed, begin + r, c, get(&l.y, r, c))));
            experts.push((l, begin));
            begin = end;
        }
        // The gradient of `mixed`, to which each head adds.
        let grad = self.scratch(rows, D, 0, F32);
        self.queue(s, move || each(&grad, |r, c| put(&grad, r, c, 0.0)));
        for (i, name) in self.sealed(&["head", "extra"]).into_iter().enumerate() {
            let l = self.layer(&mut b, name, mixed);
            let tally = tally.clone();
            self.queue(s, move || {
                let size = (l.y.rows * l.y.cols) as f32;
                let mut sum = 0.0;
                each(&l.y, |r, c| {
                    let d = get(&l.y, r, c) - noise([10 + i, rank * 2 + micro, r, c]);
                    sum += (d * d) as f64;
                    put(&l.dy, r, c, d / size);
                });
                if step == NAN_STEP && rank == 0 && micro == 1 {
                    put(&l.dy, 4, 5, f32::NAN);
                }
                tally.loss.set(tally.loss.get() + 0.5 * sum / size as f64);
            });
            let dx = self.input_gradient(&mut b, l.linear, 0, F32);
            self.queue(s, move || {
                each(&dx, |r, c| put(&grad, r, c, get(&grad, r, c) + get(&dx, r, c)))
            });
        }
        for (l, begin) in experts {
            self.queue(s, move || each(&l.dy, |r, c| put(&l.dy, r, c, get(&grad, begin + r, c))));
            let dx = self.input_gradient(&mut b, l.linear, 2, BF16);
            self.queue(s, move || each(&dx, |r, c| put(&grad, begin + r, c, get(&dx, r, c))));
        }
        let mut above = grad;
        for i in (0..self.projections().len()).rev() {
            let (l, up) = (b.layers[i], above);
            let pass = |on: bool, v: f32| if on { v } else { 0.0 };
            self.queue(s, move || {
                each(&l.dy, |r, c| put(&l.dy, r, c, pass(get(&l.y, r, c) > 0.0, get(&up, r, c))))
            });
            if i > 0 {
                above = self.input_gradient(&mut b, l.linear, 0, F32);
            }
        }
        b
    }
    /// The gradients of weights of a micro-batch. The first one of a weight in a step overwrites.
    unsafe fn weights(&mut self, b: &Batch, stream: usize, first: bool) {
        let mut fresh: Vec<bool> = self.r.parameters.iter().map(|_| first).collect();
        for l in b.layers.iter().rev() {
            let w = self.r.linears[l.linear].weight as usize;
            let dw = self.r.parameters[w].gradient;
            let db = self.r.bias(&self.r.linears[l.linear].name).map(|b| b.gradient);
            if let (Some(db), true) = (db, first && !fresh[w]) {
                self.queue(stream, move || each(&db, |r, c| put(&db, r, c, 0.0)));
            }
            self.r.backward(stream, l, fresh[w], [None, Some(dw), db]);
            fresh[w] = false;
        }
    }
    /// Runs each forward again, and from it the backward, and compares both with the first.
    unsafe fn recompute(&mut self, b: &Batch, stream: usize) {
        fn same(a: &Tensor, b: &Tensor) {
            each(a, |r, c| {
                assert!(get(a, r, c).to_bits() == get(b, r, c).to_bits(), "a repeated call differs")
            });
            for r in 1..a.rows as usize {
                let mut gap = a.cols as usize..a.stride as usize;
                assert!(gap.all(|c| get(a, r - 1, c).is_nan()), "a gap between rows was written");
            }
        }
        for l in b.layers.clone() {
            let y = self.scratch(l.y.rows as usize, l.y.cols as usize, 1, F32);
            let saved = self.r.saved(l.linear, l.x.rows as usize);
            self.queue(stream, move || std::ptr::write_bytes(saved.0, 0x55, saved.1));
            let again = Layer { y, saved, ..l };
            self.r.forward(stream, &again);
            self.queue(stream, move || {
                let part = |s: (*mut u8, usize)| std::slice::from_raw_parts(s.0, s.1);
                assert!(part(saved) == part(l.saved), "`saved` of a recomputed forward differs");
                same(&y, &l.y);
            });
            if let Some(first) = l.dx {
                let dx = self.scratch(first.rows as usize, first.cols as usize, 1, first.dtype);
                self.r.backward(stream, &again, false, [Some(dx), None, None]);
                self.queue(stream, move || same(&dx, &first));
            }
        }
    }
    pub unsafe fn train(&mut self, step: usize) -> Vec<Rc<Tally>> {
        (0..self.r.parameters.len()).for_each(|p| self.r.quantize(p % 2, p));
        self.r.join();
        let tallies = vec![Rc::<Tally>::default(), Rc::default()];
        let first = self.activations(step, 0, &tallies[0]);
        let second = self.activations(step, 1, &tallies[1]);
        self.r.streams.order(0, 1);
        self.weights(&first, 1, true);
        // Next to the gradients of weights of the same linears.
        self.recompute(&first, 0);
        self.r.streams.order(1, 0);
        self.weights(&second, 0, false);
        self.recompute(&second, 1);
        self.r.sync();
        tallies
    }
    /// Of slots, weights and gradients, without the codes of weights: kernels may have an order of their own
    /// for them, and outputs show them. Before end_step, also without slots whose last bits follow the order of
    /// calls.
    pub fn hash(&self, sums: bool) -> u64 {
        let counts = |s: &&SlotMemory| {
            s.desc.role != role::WEIGHT_CACHE && (sums || s.desc.combine != COMBINE_SUM)
        };
        let slots = self.r.slots.iter().filter(counts);
        let hash = slots.fold(0, |h, s| match s.desc.dtype {
            F32 => {
                let float = |b: &[u8]| f32::from_ne_bytes(b.try_into().unwrap());
                fold(h, s.content().chunks(4).map(float))
            }
            _ => fnv(h, s.content()),
        });
        self.r.all().fold(hash, |h, p| {
            let own = p.master.iter().chain(&p.momentum).copied();
            fold(h, own.chain(elements(&p.gradient)))
        })
    }
}
