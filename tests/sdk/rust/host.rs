//! A host that records diagnostics, kernels that do nothing, and a session of the backend `wrong`.
use std::cell::RefCell;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};
use std::slice::from_raw_parts;

use octavo_sys::growable::fresh;
use octavo_sys::sys::*;

thread_local! {
    static SAID: RefCell<Vec<(u32, String)>> = RefCell::new(Vec::new());
    static CLEARED: RefCell<Vec<(usize, u64)>> = RefCell::new(Vec::new());
}

pub fn text(s: octavo_str) -> String {
    let bytes = unsafe { from_raw_parts(s.data.cast::<u8>(), s.size as usize) };
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn str_of(s: &str) -> octavo_str {
    octavo_str { data: s.as_ptr().cast(), size: s.len() as u64 }
}

unsafe extern "C" fn diagnose(_: *mut c_void, d: *const octavo_diagnostic) {
    let d = &*d;
    assert_eq!(text(d.domain), "wrong");
    SAID.with(|said| said.borrow_mut().push((d.code, text(d.text))));
}

/// The diagnostics since the last time.
pub fn said() -> Vec<(u32, String)> {
    SAID.with(|said| said.take())
}
/// Address and bytes of the copies that filled with 0.
pub fn cleared() -> Vec<(usize, u64)> {
    CLEARED.with(|cleared| cleared.take())
}

unsafe extern "C" fn workspace_bytes(_: *mut c_void, _: *const c_void, b: *mut u64) -> u32 {
    *b = 0;
    OCTAVO_OK
}
unsafe extern "C" fn dequantize(_: *mut c_void, _: *const octavo_dequantize) -> u32 {
    OCTAVO_OK
}
unsafe extern "C" fn copy(_: *mut c_void, c: *const octavo_copy) -> u32 {
    assert!((*c).in_.is_null());
    CLEARED.with(|cleared| cleared.borrow_mut().push(((*c).out as usize, (*c).bytes)));
    OCTAVO_OK
}
unsafe extern "C" fn slot(count: *mut c_void, _: *const octavo_slot) -> u32 {
    *count.cast::<u32>() += 1;
    OCTAVO_OK
}
unsafe extern "C" fn use_(_: *mut c_void, _: *const octavo_slot_use) -> u32 {
    OCTAVO_OK
}
unsafe extern "C" fn verdict(decision: *mut c_void, v: *const octavo_verdict) {
    *decision.cast::<u32>() = (*v).decision;
}

pub struct Fixture {
    pub host: octavo_host,
    pub kernels: octavo_kernels,
    pub caps: octavo_kernels_caps,
    pub options: Vec<octavo_option_value>,
    pub backend: octavo_backend,
    pub session: *mut octavo_session,
}

impl Fixture {
    pub fn new(at: &'static str, how: &'static str) -> Self {
        let mut f = Fixture {
            host: fresh(),
            kernels: fresh(),
            caps: fresh(),
            options: Vec::new(),
            backend: fresh(),
            session: null_mut(),
        };
        f.host.abi_major = OCTAVO_ABI_MAJOR;
        f.host.diagnose = Some(diagnose);
        f.kernels.workspace_bytes = Some(workspace_bytes);
        f.kernels.dequantize = Some(dequantize);
        f.kernels.copy = Some(copy);
        f.set("at", at);
        f.set("how", how);
        let mut plugin = null();
        assert_eq!(unsafe { crate::wrong::octavo_plugin_query_1(&f.host, &mut plugin) }, OCTAVO_OK);
        let find = unsafe { (*plugin).get_interface.unwrap() };
        f.backend = unsafe { *find(str_of("octavo.backend/1")).cast::<octavo_backend>() };
        said();
        f
    }
    pub fn set(&mut self, name: &'static str, value: &'static str) {
        let mut v: octavo_value = unsafe { std::mem::zeroed() };
        v.type_ = OCTAVO_VALUE_TEXT;
        v.text = str_of(value);
        self.options.push(octavo_option_value { name: str_of(name), value: v });
    }
    pub fn desc(&self) -> octavo_session_desc {
        let mut d: octavo_session_desc = fresh();
        d.host = &self.host;
        d.kernels = &self.kernels;
        d.caps = &self.caps;
        d.options = self.options.as_ptr();
        d.option_count = self.options.len() as u64;
        d
    }
    /// The status, and the decision of the last verdict.
    pub fn check(&self) -> (u32, u32) {
        let mut decision = u32::MAX;
        let mut sink: octavo_verdict_sink = fresh();
        sink.ctx = (&mut decision as *mut u32).cast();
        sink.verdict = Some(verdict);
        let status = unsafe { self.backend.check_session.unwrap()(&self.desc(), &sink) };
        (status, decision)
    }
    pub fn open(&mut self) -> u32 {
        unsafe { self.backend.open_session.unwrap()(&self.desc(), &mut self.session) }
    }
    /// A weight [2, 3], and its linear.
    pub fn add(&mut self) -> u32 {
        let mut p: octavo_parameter_desc = fresh();
        p.name = str_of("w");
        (p.rows, p.cols, p.dtype, p.gradient_dtype) = (2, 3, OCTAVO_F32, OCTAVO_F32);
        p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
        let mut id = OCTAVO_NONE;
        let mut v: octavo_verdict = fresh();
        let status =
            unsafe { self.backend.add_parameter.unwrap()(self.session, &p, &mut v, &mut id) };
        if status != OCTAVO_OK {
            assert_eq!((id, v.decision), (OCTAVO_NONE, OCTAVO_DECLINE));
            return status;
        }
        let mut l: octavo_linear_desc = fresh();
        (l.name, l.weight) = (str_of("l"), id);
        unsafe { self.backend.add_linear.unwrap()(self.session, &l, &mut v, &mut id) }
    }
    /// The reason by which a linear of the weight 0 with an option of its own is declined.
    pub fn reason_against_an_option(&mut self) -> u32 {
        let value = octavo_value {
            type_: OCTAVO_VALUE_INT,
            reserved: 0,
            integer: 1,
            real: 0.0,
            text: str_of(""),
        };
        let option = octavo_option_value { name: str_of("any"), value };
        let mut l: octavo_linear_desc = fresh();
        (l.name, l.options, l.option_count) = (str_of("with_an_option"), &option, 1);
        let mut id = OCTAVO_NONE;
        let mut v: octavo_verdict = fresh();
        let status = unsafe { self.backend.add_linear.unwrap()(self.session, &l, &mut v, &mut id) };
        assert_eq!((status, id, v.decision), (OCTAVO_OK, OCTAVO_NONE, OCTAVO_DECLINE));
        v.reason
    }
    /// The status, and how many slots were emitted.
    pub fn seal(&mut self) -> (u32, u32) {
        let mut slots = 0_u32;
        let mut sink: octavo_slot_sink = fresh();
        sink.ctx = (&mut slots as *mut u32).cast();
        sink.slot = Some(slot);
        sink.use_ = Some(use_);
        let status = unsafe { self.backend.seal.unwrap()(self.session, &sink) };
        (status, slots)
    }
    pub fn ready(at: &'static str, how: &'static str) -> Self {
        let mut f = Fixture::new(at, how);
        assert_eq!((f.open(), f.add(), f.seal().0), (OCTAVO_OK, OCTAVO_OK, OCTAVO_OK));
        f
    }
    pub fn growing(growth: i64) -> Self {
        let mut f = Fixture::new("nowhere", "panics");
        let mut v: octavo_value = unsafe { std::mem::zeroed() };
        (v.type_, v.integer) = (OCTAVO_VALUE_INT, growth);
        f.options.push(octavo_option_value { name: str_of("growth"), value: v });
        assert_eq!((f.open(), f.add(), f.seal().0), (OCTAVO_OK, OCTAVO_OK, OCTAVO_OK));
        f
    }
    pub fn plan(&self) -> octavo_linear_plan {
        let mut plan: octavo_linear_plan = fresh();
        let linear_plan = self.backend.linear_plan.unwrap();
        assert_eq!(unsafe { linear_plan(self.session, 0, &mut plan) }, OCTAVO_OK);
        plan
    }
    pub fn forward(&self, rows: i64) -> u32 {
        let mut data = [0_f32; 64];
        let mut matrix = |cols| octavo_tensor {
            data: data.as_mut_ptr().cast(),
            rows,
            cols,
            stride: cols,
            dtype: OCTAVO_F32,
            reserved: 0,
        };
        let (x, mut y) = (matrix(3), matrix(2));
        let list = [y.data, y.data];
        let mut c: octavo_forward_call = fresh();
        (c.x, c.y, c.slots) = (&x, &mut y, list.as_ptr());
        unsafe { self.backend.linear_forward.unwrap()(self.session, &c) }
    }
    pub fn end_step(&self, list: &[*mut c_void]) -> u32 {
        let mut c: octavo_step_call = fresh();
        c.slots = list.as_ptr();
        unsafe { self.backend.end_step.unwrap()(self.session, &c) }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        unsafe { self.backend.close_session.unwrap()(self.session) };
    }
}
