//! A host of the plugin ABI without a host library: loads a backend and kernels, trains a small model
//! on two simulated ranks, and checks that the results do not depend on when kernels run.

mod abi;
mod lazy;
mod library;
mod memory;
mod model;
mod options;
mod owned;
mod rank;
mod values;

use abi::*;
use lazy::Streams;
use library::Library;
use model::*;
use options::Options;
use owned::Parameter;
use rank::Rank;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use values::{each, elements, fnv, get, put};

extern "C" {
    fn dlopen(path: *const c_char, mode: i32) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const u8) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

pub fn check(status: Status, what: &str) {
    assert!(status == OK, "{what}: status {status}");
}

unsafe extern "C" fn diagnose(_: *mut c_void, d: *const Diagnostic) {
    let d = Diagnostic::take(d);
    if d.severity >= 2 {
        eprintln!("{}: {}", d.domain.text(), d.text.text());
    }
}
unsafe extern "C" fn no_extension(_: *mut c_void, _: Str) -> *const c_void {
    std::ptr::null()
}

pub unsafe fn open_library(path: &str) -> *mut c_void {
    let name = CString::new(path).unwrap();
    let library = dlopen(name.as_ptr(), 2);
    if library.is_null() {
        panic!("{}", CStr::from_ptr(dlerror()).to_string_lossy());
    }
    library
}
/// `name` ends with a zero byte.
pub unsafe fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let found = dlsym(library, name.as_ptr());
    assert!(!found.is_null(), "no {name}");
    found
}
/// The table of an interface, which stays loaded.
unsafe fn load(path: &str, interface: &str, host: &'static Host) -> *const c_void {
    let query: Query = std::mem::transmute(symbol(open_library(path), SYMBOL));
    let mut plugin = std::ptr::null();
    check(query(host, &mut plugin), "the query");
    let plugin = Plugin::take(plugin);
    assert!(plugin.abi_major == 1 && plugin.abi_minor == 0, "another ABI");
    let table = plugin.get_interface.unwrap()(Str::new(interface));
    assert!(!table.is_null(), "{path} has no {interface}");
    table
}

/// Combines slots and gradients over the ranks that have them.
fn combine(ranks: &[Trainer]) {
    // Of each value: where it is on the ranks that have it.
    let mut places: BTreeMap<(String, String, usize), Vec<(*mut f32, u32)>> = BTreeMap::new();
    for t in ranks {
        for s in t.r.slots.iter().filter(|s| s.is(SLOT_REDUCE)) {
            assert!(s.desc.dtype == F32 && s.desc.combine != 0, "{} cannot be combined", s.key);
            let cols = s.desc.cols as usize;
            for i in 0..s.bytes / 4 {
                let key = match &s.labels {
                    Some(labels) => (s.name.clone(), labels[i % cols].clone(), i / cols),
                    None => (s.key.clone(), String::new(), i),
                };
                let at = (s.data as *mut f32).wrapping_add(i);
                places.entry(key).or_default().push((at, s.desc.combine));
            }
        }
    }
    for places in places.values() {
        assert!(places.len() <= ranks.len(), "two columns of a rank have one label");
        let mut all = places.iter().map(|(at, how)| (unsafe { **at }, *how));
        let first = all.next().unwrap().0;
        // A NaN stays.
        let max = |a: f32, b: f32| if a.is_nan() || a > b { a } else { b };
        let total =
            all.fold(first, |a, (b, how)| if how == COMBINE_MAX { max(a, b) } else { a + b });
        places.iter().for_each(|(at, _)| unsafe { **at = total });
    }
    let mut gradients: BTreeMap<(&str, usize), Vec<Tensor>> = BTreeMap::new();
    for p in ranks.iter().flat_map(|t| t.r.all()) {
        gradients.entry((&p.name, p.master.len())).or_default().push(p.gradient);
    }
    for all in gradients.values() {
        each(&all[0], |r, c| {
            let sum: f32 = all.iter().map(|g| get(g, r, c)).sum();
            all.iter().for_each(|g| put(g, r, c, sum));
        });
    }
}

struct Case<'a> {
    backend: &'static Backend,
    plugin: &'a str,
    kernels: *const Kernels,
    host: &'static Host,
    options: Options,
    /// Of the second head.
    own: Options,
}

/// The tables may be used by any thread.
unsafe impl Sync for Case<'_> {}

impl Case<'_> {
    /// The lines of all steps, eager or, with a seed, with late kernels.
    unsafe fn run(&self, seed: Option<u64>, library: Option<&'static Library>) -> Vec<String> {
        let own = self.own.changes();
        let open = |rank| {
            let streams = Streams::open(self.kernels, self.host, seed);
            let library = library.map(|l| (l, self.plugin));
            let mut r = Rank::open(self.backend, streams, self.host, &self.options, library);
            first_seal(&mut r, rank);
            Trainer { r, rank }
        };
        let mut ranks: Vec<_> = (0..2).map(open).collect();
        let (mut lines, mut start) = (vec![], 0.0);
        for step in 0..STEPS {
            if step == SECOND_SEAL {
                ranks.iter_mut().for_each(|t| second_seal(&mut t.r, t.rank, &own));
            }
            let tallies: Vec<_> = ranks.iter_mut().flat_map(|t| t.train(step)).collect();
            let loss: f64 = tallies.iter().map(|t| t.loss.get()).sum();
            let bits = tallies.iter().fold(0, |h: u64, t| h.rotate_left(1) ^ t.bits.get());
            combine(&ranks);
            // What was cast, and what is the host's own.
            let cast = |t: &Trainer| {
                let slots = t.r.slots.iter().filter(|s| s.desc.role == role::NONFINITE);
                slots.flat_map(|s| s.content().to_vec()).any(|b| b != 0)
            };
            let own =
                |t: &Trainer| t.r.all().any(|p| elements(&p.gradient).any(|v| !v.is_finite()));
            let flags: Vec<bool> = ranks.iter().map(cast).collect();
            assert!(flags[0] == flags[1], "a reduced flag differs");
            let skip = flags[0] || ranks.iter().any(own);
            assert!(skip == (step == INF_STEP || step == NAN_STEP), "step {step}: {flags:?}");
            let hash = |ranks: &[Trainer], sums| {
                ranks.iter().fold(0, |h: u64, t| h.rotate_left(1) ^ t.hash(sums))
            };
            let before = hash(&ranks, false);
            for t in &mut ranks {
                if !skip {
                    t.r.all_mut().for_each(Parameter::step);
                }
                t.r.end_step(0);
                t.r.sync();
            }
            let after = hash(&ranks, true);
            let note = if skip { " skipped" } else { "" };
            lines.push(format!(
                "step {step} loss {loss:.9e} outputs {bits:016x} slots {before:016x} {after:016x}{note}"
            ));
            assert!(step != STEPS - 1 || loss < start, "the model does not learn");
            if step == SECOND_SEAL {
                start = loss;
            }
        }
        lines
    }
}

/// Trains each case of a file of lines "OPTIONS | OPTIONS OF THE SECOND HEAD | HASH", and compares all runs of
/// it with each other and with the hash.
unsafe fn run(cases: &str, plugin: &str, kernels: Option<*const Kernels>, arguments: &[&str]) {
    let mut host = Host::blank();
    host.abi_major = 1;
    host.diagnose = Some(diagnose);
    host.get_extension = Some(no_extension);
    let host: &'static Host = Box::leak(Box::new(host));
    let own = |path| load(path, "octavo.kernels/1", host) as *const Kernels;
    let kernels = kernels.unwrap_or_else(|| own(arguments[0]));
    let library = arguments.get(1).map(|path| Library::load(path));
    let backend = Backend::take(load(plugin, "octavo.backend/1", host) as *const Backend);
    let backend: &'static Backend = Box::leak(Box::new(backend));
    let mut wrong = 0;
    for line in std::fs::read_to_string(cases).expect(cases).lines() {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        assert!(parts.len() == 3, "{cases} has lines of three parts, found {line}");
        let (options, own) = (Options::of(backend, parts[0]), Options::of(backend, parts[1]));
        let case = Case { backend, plugin, kernels, host, options, own };
        let eager = case.run(None, None);
        let hash = format!("{:016x}", eager.iter().fold(0, |h, l| fnv(h, l.as_bytes())));
        println!("{} | {} | {hash}", parts[0], parts[1]);
        if hash != parts[2] {
            wrong += 1;
            println!("expected {}, found {hash}, of:\n{}", parts[2], eager.join("\n"));
        }
        let mut others = vec![("late", Some(77), None)];
        if library.is_some() {
            others.push(("liboctavo", None, library));
        }
        // At once: sessions of one plugin do not disturb each other.
        std::thread::scope(|scope| {
            for (name, seed, library) in others {
                let (case, eager) = (&case, &eager);
                scope.spawn(move || {
                    let lines = case.run(seed, library);
                    let differs = eager.iter().zip(&lines).find(|(a, b)| a != b);
                    assert!(
                        differs.is_none() && lines.len() == eager.len(),
                        "{name} differs: {differs:?}"
                    );
                });
            }
        });
    }
    assert!(wrong == 0, "{wrong} hashes differ from {cases}");
}

/// For kernels that are no plugin, in a library made of this program. A failure ends the process.
#[no_mangle]
pub unsafe extern "C" fn run_on(
    cases: *const c_char,
    plugin: *const c_char,
    kernels: *const Kernels,
) {
    let text = |s| CStr::from_ptr(s).to_str().unwrap();
    run(text(cases), text(plugin), Some(kernels), &[]);
}

#[allow(dead_code)]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments.iter().map(|a| a.as_str()).collect::<Vec<_>>()[..] {
        [_, cases, plugin, rest @ ..] if rest.len() == 2 => unsafe {
            run(cases, plugin, None, rest)
        },
        _ => {
            eprintln!("usage: host CASES BACKEND.so KERNELS.so LIBOCTAVO.so");
            std::process::exit(2);
        }
    }
}
