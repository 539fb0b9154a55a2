//! One rank: a session, the memory of its slots and the calls of its verbs.

use crate::abi::*;
use crate::lazy::{Streams, STREAMS};
use crate::library::{Library, Through};
use crate::options::{accepted, is_accepted, Options};
use crate::owned::{Parameter, SlotMemory};
use crate::{check, memory};
use std::collections::{BTreeMap, HashMap};

pub struct Linear {
    pub name: String,
    pub weight: u32,
    pub plan: LinearPlan,
}

/// What the calls of a linear in a micro-batch have in common.
#[derive(Clone, Copy)]
pub struct Layer {
    pub linear: usize,
    pub x: Tensor,
    pub y: Tensor,
    pub dy: Tensor,
    pub dx: Option<Tensor>,
    pub saved: (*mut u8, usize),
    pub bias: Option<Tensor>,
}

pub struct Rank {
    pub streams: Box<Streams>,
    backend: &'static Backend,
    session: Session,
    through: Option<Through>,
    pub parameters: Vec<Parameter>,
    /// Parameters that the backend does not know.
    pub biases: Vec<Parameter>,
    pub linears: Vec<Linear>,
    pub slots: Vec<SlotMemory>,
    uses: BTreeMap<(u32, u32), Vec<SlotUse>>,
    workspaces: HashMap<(usize, usize), *mut u8>,
    /// Buffers until the next sync.
    pub scratch: Vec<*mut u8>,
}

fn poison<T>(x: &mut T) {
    unsafe { std::ptr::write_bytes(x as *mut T as *mut u8, 0xa5, std::mem::size_of::<T>()) }
}
fn at(t: &mut Option<Tensor>) -> *mut Tensor {
    t.as_mut().map_or(std::ptr::null_mut(), |t| t)
}
/// Queues that a range is filled with junk.
fn filled(streams: &mut Streams, stream: usize, data: *mut u8, bytes: usize) {
    if bytes > 0 {
        streams.host(stream, move || unsafe { std::ptr::write_bytes(data, memory::JUNK, bytes) });
    }
}

impl Rank {
    /// A session of H's own, or one that liboctavo opens for the plugin at a path.
    pub unsafe fn open(
        mut backend: &'static Backend,
        mut streams: Box<Streams>,
        host: *const Host,
        options: &Options,
        library: Option<(&'static Library, &str)>,
    ) -> Rank {
        let mut session = std::ptr::null_mut();
        let mut through = None;
        if let Some((library, plugin)) = library {
            let t = Through::open(library, host, plugin, &options.changes());
            session = (library.run_session)(t.run);
            backend = Box::leak(Box::new(Backend::take((library.run_backend)(t.run))));
            through = Some(t);
        } else {
            let values = options.values();
            let mut desc = SessionDesc::blank();
            desc.device = Device { kind: 1, index: 0 };
            desc.host = host;
            desc.kernels = &streams.table;
            desc.caps = &streams.caps;
            desc.kernels_ctx = streams.ctx();
            desc.options = values.as_ptr();
            desc.option_count = values.len() as u64;
            desc.flags = DETERMINISTIC;
            accepted(|sink| backend.check_session.unwrap()(&desc, sink));
            check(backend.open_session.unwrap()(&desc, &mut session), "open_session");
            poison(&mut desc);
        }
        Rank {
            streams,
            backend,
            session,
            through,
            parameters: vec![],
            biases: vec![],
            linears: vec![],
            slots: vec![],
            uses: BTreeMap::new(),
            workspaces: HashMap::new(),
            scratch: vec![],
        }
    }
    pub unsafe fn add_parameter(
        &mut self,
        name: &str,
        cols: usize,
        (dtype, gradient): (u32, u32),
        initial: Vec<f32>,
    ) {
        let (mut desc, mut verdict) = (ParameterDesc::blank(), Verdict::blank());
        desc.name = Str::new(name);
        desc.rows = (initial.len() / cols) as i64;
        desc.cols = cols as i64;
        desc.dtype = dtype;
        desc.gradient_dtype = gradient;
        desc.flags = LINEAR_WEIGHT;
        let mut id = NONE;
        let status = match &self.through {
            Some(t) => (t.library.add_parameter)(t.run, &desc, &mut verdict, &mut id),
            None => {
                let add = self.backend.add_parameter.unwrap();
                add(self.session, &desc, &mut verdict, &mut id)
            }
        };
        check(status, "add_parameter");
        assert!(is_accepted(&verdict), "{name}: {}", verdict.text.text());
        assert!(id as usize == self.parameters.len());
        self.parameters.push(Parameter::new(name, cols, (dtype, gradient), initial));
    }
    pub unsafe fn add_linear(&mut self, name: &str, weight: &str, options: &[OptionValue]) {
        let (mut desc, mut verdict) = (LinearDesc::blank(), Verdict::blank());
        desc.name = Str::new(name);
        let weight = self.parameters.iter().position(|p| p.name == weight).expect("a weight");
        desc.weight = weight as u32;
        if !options.is_empty() {
            desc.options = options.as_ptr();
            desc.option_count = options.len() as u64;
        }
        let mut id = NONE;
        let status = match &self.through {
            Some(t) => (t.library.add_linear)(t.run, &desc, &mut verdict, &mut id),
            None => self.backend.add_linear.unwrap()(self.session, &desc, &mut verdict, &mut id),
        };
        check(status, "add_linear");
        assert!(is_accepted(&verdict), "{name}: {}", verdict.text.text());
        assert!(id as usize == self.linears.len());
        let plan = LinearPlan::blank();
        self.linears.push(Linear { name: name.into(), weight: weight as u32, plan });
    }

    /// Seals, allocates what the seal emits, and reads the plans.
    pub unsafe fn seal(&mut self) {
        unsafe extern "C" fn slot(ctx: *mut c_void, s: *const Slot) -> Status {
            (*(ctx as *mut Rank)).take_slot(Slot::take(s))
        }
        unsafe extern "C" fn usage(ctx: *mut c_void, u: *const SlotUse) -> Status {
            let r = &mut *(ctx as *mut Rank);
            let u = *u;
            if !(1..=3).contains(&u.owner_kind) || u.slot as usize >= r.slots.len() {
                return UNSUPPORTED;
            }
            r.uses.entry((u.owner_kind, u.owner)).or_default().push(u);
            OK
        }
        if let Some(mut t) = self.through.take() {
            t.seal();
            for id in self.slots.len() as u32..(t.library.run_slot_count)(t.run) {
                let s = Slot::take((t.library.run_slot)(t.run, id));
                check(
                    self.take_slot_at(s, (t.library.store_address)(t.store, id) as *mut u8),
                    "a slot",
                );
                let s = self.slots.last().unwrap();
                if s.is(SLOT_NATIVE) {
                    let (owner, role, data) = (s.desc.owner, s.desc.role, s.data as *mut c_void);
                    check(
                        (t.library.store_native)(t.store, owner, role, data),
                        "octavo_store_native",
                    );
                }
            }
            let objects = (0..self.parameters.len()).map(|p| (owner::PARAMETER, p as u32));
            let linears = (0..self.linears.len()).map(|l| (owner::LINEAR, l as u32));
            for of in objects.chain(linears).chain([(owner::SESSION, 0)]) {
                self.uses.insert(of, t.uses(of.0, of.1));
            }
            self.through = Some(t);
        } else {
            let mut sink = SlotSink::blank();
            sink.ctx = self as *mut Rank as *mut c_void;
            sink.slot = Some(slot);
            sink.usage = Some(usage);
            check(self.backend.seal.unwrap()(self.session, &sink), "seal");
        }
        for id in 0..self.linears.len() {
            let mut plan = LinearPlan::blank();
            match &self.through {
                Some(t) => plan = LinearPlan::take((t.library.run_plan)(t.run, id as u32)),
                None => {
                    let ask = self.backend.linear_plan.unwrap();
                    check(ask(self.session, id as u32, &mut plan), "linear_plan")
                }
            }
            assert!(plan.flags & !3 == 0 && plan.gradient == GRADIENT_TENSOR, "an unknown plan");
            self.linears[id].plan = plan;
        }
    }
    unsafe fn take_slot(&mut self, s: Slot) -> Status {
        self.take_slot_at(s, std::ptr::null_mut())
    }
    /// A slot of the seal, in memory of its own if it has none.
    unsafe fn take_slot_at(&mut self, s: Slot, at: *mut u8) -> Status {
        let unknown = s.access.iter().any(|a| *a > 4)
            || s.access[6..].iter().any(|a| *a != 0)
            || s.combine > 2
            || s.shard > 1
            || s.flags & !15 != 0
            || !DTYPES.contains(&s.dtype)
            || !(1..=3).contains(&s.owner_kind);
        if unknown || s.id as usize != self.slots.len() {
            return UNSUPPORTED;
        }
        let name = s.name.text();
        let owner = match s.owner_kind {
            owner::SESSION => "session".to_string(),
            owner::PARAMETER => format!("parameter/{}", self.parameters[s.owner as usize].name),
            _ => format!("linear/{}", self.linears[s.owner as usize].name),
        };
        let mut key = format!("{owner}/{name}");
        let same = |o: &&SlotMemory| {
            o.name == name && (o.desc.owner_kind, o.desc.owner) == (s.owner_kind, s.owner)
        };
        let same = self.slots.iter().filter(same).count();
        if same > 0 {
            key += &format!("@{}", same + 1);
        }
        let labels = (!s.labels.is_null())
            .then(|| (0..s.cols as usize).map(|c| (*s.labels.add(c)).text()).collect());
        let bytes = s.rows as usize * dtype_bytes(s.dtype, s.cols as usize);
        let data = if s.flags & SLOT_NATIVE == 0 {
            if at.is_null() {
                memory::alloc(bytes, dtype_bytes(s.dtype, 1))
            } else {
                at
            }
        } else {
            if s.owner_kind != owner::PARAMETER
                || s.role != role::WEIGHT && s.role != role::GRADIENT
            {
                return UNSUPPORTED;
            }
            let p = &self.parameters[s.owner as usize];
            (if s.role == role::WEIGHT { p.value.data } else { p.gradient.data }) as *mut u8
        };
        let m = SlotMemory { key, name, desc: s, labels, data, bytes };
        m.fill(!at.is_null());
        self.slots.push(m);
        OK
    }

    /// The list that a verb gets for an object, which is also liboctavo's if that has one.
    fn list(&self, verb: usize, owner: (u32, u32)) -> Vec<*mut c_void> {
        let entry = |u: &SlotUse| {
            let s = &self.slots[u.slot as usize];
            let first = dtype_bytes(s.desc.dtype, u.first as usize);
            let is_used = s.desc.access[verb] != access::NONE;
            (if is_used { s.data.wrapping_add(first) } else { std::ptr::null_mut() }) as *mut c_void
        };
        let all: Vec<_> = self.uses.get(&owner).map_or(&[][..], |u| u).iter().map(entry).collect();
        if let Some(t) = &self.through {
            let theirs = unsafe { (t.library.store_slots)(t.store, verb as u32, owner.0, owner.1) };
            let same = |(i, e): (usize, &*mut c_void)| unsafe { *theirs.add(i) == *e };
            assert!(all.iter().enumerate().all(same), "liboctavo has another list, of verb {verb}");
        }
        all
    }
    /// A workspace of exactly `bytes` bytes on a stream, filled with junk.
    fn workspace(&mut self, stream: usize, bytes: usize) -> *mut c_void {
        let at = *self
            .workspaces
            .entry((stream, bytes))
            .or_insert_with(|| memory::alloc(bytes, ALIGNMENT));
        filled(&mut self.streams, stream, at, bytes);
        at as *mut c_void
    }
    /// Calls a verb, and then spoils all that its arguments were. On late streams, no code but that of
    /// kernels can touch a buffer.
    unsafe fn call<T>(
        &self,
        name: &str,
        verb: Verb<T>,
        mut c: T,
        mut slots: Vec<*mut c_void>,
        tensors: &mut [Option<Tensor>],
    ) {
        memory::lock(self.streams.lazy());
        check(verb.expect(name)(self.session, &c), name);
        poison(&mut c);
        slots.fill(0xa5a5 as *mut c_void);
        tensors.iter_mut().flatten().for_each(poison);
    }
    pub unsafe fn quantize(&mut self, stream: usize, parameter: usize) {
        let owner = (owner::PARAMETER, parameter as u32);
        let used = self.linears.iter().filter(|l| l.weight == parameter as u32);
        let bytes = used.map(|l| l.plan.weight_workspace).max().unwrap_or(0) as usize;
        let slots = self.list(verb::QUANTIZE_WEIGHT, owner);
        let mut c = WeightCall::blank();
        c.parameter = parameter as u32;
        c.stream = self.streams.handle(stream);
        c.workspace = self.workspace(stream, bytes);
        c.slots = slots.as_ptr();
        self.call("quantize_weight", self.backend.quantize_weight, c, slots, &mut []);
    }
    /// Memory for `saved` of `rows` rows.
    pub fn saved(&mut self, linear: usize, rows: usize) -> (*mut u8, usize) {
        let bytes = self.linears[linear].plan.saved.bytes(rows);
        let at = memory::alloc(bytes, ALIGNMENT);
        self.scratch.push(at);
        (at, bytes)
    }
    pub unsafe fn forward(&mut self, stream: usize, l: &Layer) {
        let bytes = self.linears[l.linear].plan.forward_workspace.bytes(l.x.rows as usize);
        let slots = self.list(verb::FORWARD, (owner::LINEAR, l.linear as u32));
        let mut t = [Some(l.x), Some(l.y), l.bias];
        let mut c = ForwardCall::blank();
        c.linear = l.linear as u32;
        c.stream = self.streams.handle(stream);
        c.workspace = self.workspace(stream, bytes);
        (c.x, c.y, c.bias) = (at(&mut t[0]), at(&mut t[1]), at(&mut t[2]));
        c.slots = slots.as_ptr();
        c.saved = l.saved.0 as *mut c_void;
        self.call("linear_forward", self.backend.linear_forward, c, slots, &mut t);
    }
    /// dx, or dw and perhaps db: without dw it is a call with SKIP_WEIGHT.
    pub unsafe fn backward(
        &mut self,
        stream: usize,
        l: &Layer,
        overwrite: bool,
        d: [Option<Tensor>; 3],
    ) {
        let plan = &self.linears[l.linear].plan;
        let bytes = plan.backward_workspace.bytes(l.dy.rows as usize);
        let x = (plan.flags & NEEDS_X != 0).then(|| l.x);
        let slots = self.list(verb::BACKWARD, (owner::LINEAR, l.linear as u32));
        let mut t = [Some(l.dy), x, d[0], d[1], d[2]];
        let mut c = BackwardCall::blank();
        c.linear = l.linear as u32;
        c.flags = if d[1].is_none() { SKIP_WEIGHT } else { overwrite as u32 * OVERWRITE };
        c.stream = self.streams.handle(stream);
        c.workspace = self.workspace(stream, bytes);
        (c.dy, c.x) = (at(&mut t[0]), at(&mut t[1]));
        (c.dx, c.dw, c.db) = (at(&mut t[2]), at(&mut t[3]), at(&mut t[4]));
        c.slots = slots.as_ptr();
        c.saved = l.saved.0 as *const c_void;
        self.call("linear_backward", self.backend.linear_backward, c, slots, &mut t);
    }
    pub unsafe fn end_step(&mut self, stream: usize) {
        let owner = (owner::SESSION, 0);
        let slots = self.list(verb::END_STEP, owner);
        let mut c = StepCall::blank();
        c.stream = self.streams.handle(stream);
        c.slots = slots.as_ptr();
        self.call("end_step", self.backend.end_step, c, slots, &mut []);
    }
    pub fn sync(&mut self) {
        self.streams.sync();
        self.scratch.drain(..).filter(|s| !s.is_null()).for_each(memory::free);
    }
    /// Each stream continues where all are.
    pub fn join(&mut self) {
        (1..STREAMS).for_each(|s| self.streams.order(s, 0));
        (1..STREAMS).for_each(|s| self.streams.order(0, s));
    }
    pub fn all(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().chain(&self.biases)
    }
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Parameter> {
        self.parameters.iter_mut().chain(&mut self.biases)
    }
    pub fn bias(&self, linear: &str) -> Option<&Parameter> {
        self.biases.iter().find(|b| b.name == linear)
    }
    pub fn linear(&self, name: &str) -> usize {
        self.linears.iter().position(|l| l.name == name).expect("a linear")
    }
}
impl Drop for Rank {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.sync();
        if self.through.is_none() {
            unsafe { self.backend.close_session.unwrap()(self.session) };
            self.slots.iter().filter(|s| !s.is(SLOT_NATIVE)).for_each(|s| memory::free(s.data));
        }
        self.workspaces.values().for_each(|w| memory::free(*w));
    }
}
