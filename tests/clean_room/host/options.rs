//! The options of a backend, and what its checks say.

use crate::abi::*;
use crate::check;

/// The options of a session: all, with their defaults, and which of them are changed. Who calls checks values,
/// since a backend may rely on it; here they are those of a file of the test.
pub struct Options {
    all: Vec<Setting>,
    changed: Vec<String>,
}
/// The text of the value is a copy.
struct Setting {
    name: String,
    value: Value,
    text: String,
}
impl Setting {
    fn value(&self) -> OptionValue {
        let text = if self.value.kind == 4 { Str::new(&self.text) } else { self.value.text };
        OptionValue { name: Str::new(&self.name), value: Value { text, ..self.value } }
    }
}
impl Options {
    /// The options of the backend with the changes "NAME=VALUE,...".
    pub unsafe fn of(backend: &Backend, changes: &str) -> Options {
        unsafe extern "C" fn take(ctx: *mut c_void, o: *const OptionDesc) -> Status {
            let o = OptionDesc::take(o);
            let (name, text) = (o.name.text(), o.initial.text.text());
            (*(ctx as *mut Vec<Setting>)).push(Setting { name, value: o.initial, text });
            OK
        }
        let mut o = Options { all: vec![], changed: vec![] };
        let mut sink = OptionSink::blank();
        sink.ctx = &mut o.all as *mut Vec<_> as *mut c_void;
        sink.option = Some(take);
        check(backend.list_options.unwrap()(&sink), "list_options");
        for (name, to) in changes.split(',').filter_map(|change| change.split_once('=')) {
            let option = o.all.iter_mut().find(|o| o.name == name).expect(name);
            match option.value.kind {
                1 => option.value.integer = to.parse().expect(name),
                2 => option.value.real = to.parse().expect(name),
                3 => option.value.integer = to.parse::<bool>().expect(name) as i64,
                _ => option.text = to.into(),
            }
            o.changed.push(name.into());
        }
        o
    }
    pub fn values(&self) -> Vec<OptionValue> {
        self.all.iter().map(Setting::value).collect()
    }
    /// Of those that the case changes.
    pub fn changes(&self) -> Vec<OptionValue> {
        let changed = self.all.iter().filter(|o| self.changed.contains(&o.name));
        changed.map(Setting::value).collect()
    }
}

/// A check whose verdicts all accept, of which there is at least one.
pub unsafe fn accepted(ask: impl FnOnce(*const VerdictSink) -> Status) {
    unsafe extern "C" fn take(ctx: *mut c_void, v: *const Verdict) {
        let v = Verdict::take(v);
        assert!(is_accepted(&v), "declined: {}", v.text.text());
        *(ctx as *mut u32) += 1;
    }
    let mut count = 0u32;
    let mut sink = VerdictSink::blank();
    sink.ctx = &mut count as *mut u32 as *mut c_void;
    sink.verdict = Some(take);
    check(ask(&sink), "a check");
    assert!(count > 0, "a check without a verdict");
}
pub fn is_accepted(v: &Verdict) -> bool {
    v.decision == 1 || v.decision == 2
}
