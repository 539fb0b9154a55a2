//! Streams that run late. A table in front of the kernels' own records each call, with copies of its
//! structs; `Streams::sync` runs what was recorded, in an order that a seed chooses among those
//! that the streams and their events allow. While calls are recorded, no buffer can be touched.

use crate::abi::*;
use crate::memory;
use std::collections::VecDeque;

/// The layout of a struct in words of 8 bytes, and which words point at further structs.
struct Layout {
    words: usize,
    grows: bool,
    pointers: &'static [(usize, &'static Layout)],
}
const fn layout(words: usize, pointers: &'static [(usize, &'static Layout)]) -> Layout {
    Layout { words, grows: true, pointers }
}
static TENSOR: Layout = Layout { words: 5, grows: false, pointers: &[] };
static SCALE: Layout = Layout { words: 5, grows: false, pointers: &[] };
static QUANTIZE: Layout =
    layout(16, &[(2, &TENSOR), (4, &TENSOR), (5, &TENSOR), (6, &SCALE), (14, &SCALE)]);
static DEQUANTIZE: Layout = layout(6, &[(2, &TENSOR), (3, &SCALE), (4, &TENSOR)]);
static COMPUTE_AMAX: Layout = layout(6, &[(2, &TENSOR), (3, &SCALE)]);
static SCALE_FROM_AMAX: Layout = layout(9, &[]);
static DELAYED: Layout = layout(11, &[]);
static GEMM: Layout =
    layout(11, &[(2, &TENSOR), (3, &TENSOR), (4, &TENSOR), (5, &TENSOR), (6, &SCALE), (7, &SCALE)]);
static SUM: Layout = layout(7, &[(2, &TENSOR), (3, &SCALE)]);
static COPY: Layout = layout(5, &[]);
static STATS: Layout = layout(10, &[(2, &TENSOR), (3, &TENSOR), (4, &SCALE)]);
static PROLOGUE: Layout = layout(7, &[(2, &TENSOR), (3, &TENSOR), (4, &TENSOR)]);
static PROLOGUE_CALL: Layout = layout(6, &[(2, &PROLOGUE), (3, &TENSOR), (4, &QUANTIZE)]);
static PACK: Layout = layout(4, &[(2, &TENSOR), (3, &TENSOR)]);
/// Of each function of Kernels::calls.
static CALLS: [&Layout; KERNEL_COUNT] = [
    &QUANTIZE,
    &DEQUANTIZE,
    &COMPUTE_AMAX,
    &SCALE_FROM_AMAX,
    &DELAYED,
    &GEMM,
    &SUM,
    &COPY,
    &STATS,
    &PROLOGUE_CALL,
    &PROLOGUE_CALL,
    &PACK,
];

/// A recorded struct and those that it points at.
struct Kept(Vec<Box<[u64]>>);
impl Kept {
    unsafe fn copy(&mut self, from: *const u64, l: &Layout) -> u64 {
        if from.is_null() {
            return 0;
        }
        let mut own = vec![0u64; l.words].into_boxed_slice();
        let known = l.words * 8;
        let bytes = if l.grows { known.min(*(from as *const u32) as usize) } else { known };
        std::ptr::copy_nonoverlapping(from as *const u8, own.as_mut_ptr() as *mut u8, bytes);
        if l.grows {
            *(own.as_mut_ptr() as *mut u32) = bytes as u32;
        }
        for (word, inner) in l.pointers {
            own[*word] = self.copy(own[*word] as *const u64, inner);
        }
        let at = own.as_ptr() as u64;
        self.0.push(own);
        at
    }
}

enum Op {
    Kernel(Kernel, *mut c_void, *const c_void, Kept),
    Host(Box<dyn FnOnce()>),
    Record(usize),
    Wait(usize),
}

pub const STREAMS: usize = 2;

/// The kernels of one device, and its streams. `table`, `ctx` and `caps` are what a session gets.
pub struct Streams {
    pub table: Kernels,
    pub caps: Caps,
    real: Kernels,
    real_ctx: *mut c_void,
    seed: Option<u64>,
    queues: [VecDeque<Op>; STREAMS],
    reached: Vec<bool>,
}

unsafe extern "C" fn stub(_: *mut c_void, _: *const c_void) -> Status {
    UNSUPPORTED
}
unsafe extern "C" fn record<const I: usize>(ctx: *mut c_void, call: *const c_void) -> Status {
    let d = &mut *(ctx as *mut Streams);
    let mut kept = Kept(Vec::new());
    let copy = kept.copy(call as *const u64, CALLS[I]) as *mut u64;
    // Word 1 of every call is its stream. A CPU's kernels know the null stream only.
    let stream = *copy.add(1) as usize;
    *copy.add(1) = 0;
    if stream > STREAMS {
        return INVALID;
    }
    let op = Op::Kernel(d.real.calls[I].unwrap(), d.real_ctx, copy as *const c_void, kept);
    d.queues[stream.max(1) - 1].push_back(op);
    OK
}
unsafe fn inner<'a>(ctx: *mut c_void) -> &'a Streams {
    &*(ctx as *const Streams)
}
unsafe extern "C" fn describe(ctx: *mut c_void, out: *mut Caps) -> Status {
    inner(ctx).real.describe.unwrap()(inner(ctx).real_ctx, out)
}
/// Calls of extensions, which this table does not forward, are declined.
unsafe extern "C" fn ability(ctx: *mut c_void, question: *mut c_void) -> Status {
    let q = question as *mut u32;
    if *q.add(2) >= 0x8000 {
        *q.add(8) = 0;
        return OK;
    }
    inner(ctx).real.ability.unwrap()(inner(ctx).real_ctx, question)
}
unsafe extern "C" fn workspace(ctx: *mut c_void, call: *const c_void, bytes: *mut u64) -> Status {
    inner(ctx).real.workspace_bytes.unwrap()(inner(ctx).real_ctx, call, bytes)
}
unsafe extern "C" fn no_extension(_: *mut c_void, _: Str) -> *const c_void {
    std::ptr::null()
}

impl Streams {
    /// Kernels that run at once without a seed, and late with one.
    pub unsafe fn open(
        kernels: *const Kernels,
        host: *const Host,
        seed: Option<u64>,
    ) -> Box<Streams> {
        let device = Device { kind: 1, index: 0 };
        let mut real = Kernels::take(kernels);
        crate::options::accepted(|sink| real.probe_device.unwrap()(device, sink));
        let mut real_ctx = std::ptr::null_mut();
        crate::check(real.open_device.unwrap()(device, host, &mut real_ctx), "open_device");
        let mut caps = Caps::blank();
        crate::check(real.describe.unwrap()(real_ctx, &mut caps), "describe");
        real.size = std::mem::size_of::<Kernels>() as u32;
        for call in &mut real.calls {
            call.get_or_insert(stub);
        }
        real.get_extension.get_or_insert(no_extension);
        let mut table = Kernels::take(&real);
        if seed.is_some() {
            table.describe = Some(describe);
            table.ability = Some(ability);
            table.workspace_bytes = Some(workspace);
            table.get_extension = Some(no_extension);
            table.calls = [
                Some(record::<0>),
                Some(record::<1>),
                Some(record::<2>),
                Some(record::<3>),
                Some(record::<4>),
                Some(record::<5>),
                Some(record::<6>),
                Some(record::<7>),
                Some(record::<8>),
                Some(record::<9>),
                Some(record::<10>),
                Some(record::<11>),
            ];
        }
        Box::new(Streams {
            table,
            caps,
            real,
            real_ctx,
            seed,
            queues: Default::default(),
            reached: Vec::new(),
        })
    }
    pub fn ctx(&mut self) -> *mut c_void {
        if self.seed.is_some() {
            self as *mut Streams as *mut c_void
        } else {
            self.real_ctx
        }
    }
    pub fn lazy(&self) -> bool {
        self.seed.is_some()
    }
    /// The handle of a stream, an address that nobody can read.
    pub fn handle(&self, stream: usize) -> *mut c_void {
        if self.lazy() {
            (stream + 1) as *mut c_void
        } else {
            std::ptr::null_mut()
        }
    }
    fn push(&mut self, stream: usize, op: Op) {
        self.queues[stream].push_back(op);
        if !self.lazy() {
            self.sync();
        }
    }
    /// Queues work of the host.
    pub fn host(&mut self, stream: usize, work: impl FnOnce() + 'static) {
        self.push(stream, Op::Host(Box::new(work)));
    }
    /// What is queued on `after` from now on runs after what is on `before` now.
    pub fn order(&mut self, before: usize, after: usize) {
        let event = self.reached.len();
        self.reached.push(false);
        self.push(before, Op::Record(event));
        self.push(after, Op::Wait(event));
    }
    /// Runs all that is queued.
    pub fn sync(&mut self) {
        memory::lock(false);
        loop {
            let ready: Vec<usize> = (0..STREAMS)
                .filter(|s| match self.queues[*s].front() {
                    None => false,
                    Some(Op::Wait(event)) => self.reached[*event],
                    Some(_) => true,
                })
                .collect();
            if ready.is_empty() {
                break;
            }
            let mut pick = 0;
            if let Some(seed) = &mut self.seed {
                // Seeds 0 and 1 prefer one stream for as long as it can run.
                pick = match *seed {
                    0 => 0,
                    1 => ready.len() - 1,
                    _ => {
                        *seed = seed
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        (*seed >> 33) as usize % ready.len()
                    }
                }
            }
            match self.queues[ready[pick]].pop_front().unwrap() {
                Op::Kernel(call, ctx, arguments, mut kept) => {
                    crate::check(unsafe { call(ctx, arguments) }, "a recorded kernel");
                    kept.0.iter_mut().for_each(|k| k.fill(u64::MAX));
                }
                Op::Host(work) => work(),
                Op::Record(event) => self.reached[event] = true,
                Op::Wait(_) => (),
            }
        }
        assert!(self.queues.iter().all(|q| q.is_empty()), "streams wait for each other");
    }
}
impl Drop for Streams {
    fn drop(&mut self) {
        unsafe { self.real.close_device.unwrap()(self.real_ctx) }
    }
}
