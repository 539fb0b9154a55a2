//! The tables of the contract, filled from a backend, and the plugin's one symbol.
use std::mem::{size_of, transmute};
use std::os::raw::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::backend::Backend;
use crate::barrier::{guard, listen, Error, Host};
use crate::growable::take;
use crate::options::emit;
use crate::session::{check_session, Session};
use crate::sys::*;
use crate::text::{borrow, constant};

/// A backend with the names that its manifest has; [`plugin!`](crate::plugin) writes it.
pub trait Plugin: Backend {
    const ID: &'static str;
    const VERSION: &'static str;
}

/// The host that asked last, for verbs without a session.
static HOST: AtomicPtr<octavo_host> = AtomicPtr::new(null_mut());

fn session_of<'a, B>(s: *const octavo_session) -> &'a Session<B> {
    // SAFETY: octavo_session is opaque to everybody; for these tables it is a Session<B>.
    unsafe { &*s.cast::<Session<B>>() }
}

unsafe extern "C" fn list_options<B: Plugin>(sink: *const octavo_option_sink) -> octavo_status {
    let host = Host::new(HOST.load(Ordering::Acquire));
    guard(host, B::ID, "list_options", || emit::<B::Options>(&take(sink)))
}

unsafe extern "C" fn check<B: Plugin>(
    desc: *const octavo_session_desc,
    sink: *const octavo_verdict_sink,
) -> octavo_status {
    let host = Host::new(take(desc).host);
    guard(host, B::ID, "check_session", || check_session::<B>(desc, sink))
}

unsafe extern "C" fn open<B: Plugin>(
    desc: *const octavo_session_desc,
    out: *mut *mut octavo_session,
) -> octavo_status {
    let host = Host::new(take(desc).host);
    guard(host, B::ID, "open_session", || {
        let session = Box::new(Session::<B>::open(desc)?);
        out.write(Box::into_raw(session).cast());
        Ok(())
    })
}

unsafe extern "C" fn close<B: Plugin>(s: *mut octavo_session) {
    if !s.is_null() {
        let session = Box::from_raw(s.cast::<Session<B>>());
        let host = session.device.host;
        guard(host, B::ID, "close_session", || {
            drop(session);
            Ok(())
        });
    }
}

/// Verbs of a session, behind the barrier.
macro_rules! verbs {
    ($($reference:tt $verb:ident($($argument:ident: $type:ty),*);)*) => {
        $(unsafe extern "C" fn $verb<B: Plugin>(
            s: verbs!(@pointer $reference), $($argument: $type),*
        ) -> octavo_status {
            let host = session_of::<B>(s).device.host;
            guard(host, B::ID, stringify!($verb), || verbs!(@session $reference s).$verb($($argument),*))
        })*
    };
    (@pointer mutable) => { *mut octavo_session };
    (@pointer shared) => { *const octavo_session };
    (@session mutable $s:ident) => { (*$s.cast::<Session<B>>()) };
    (@session shared $s:ident) => { session_of::<B>($s) };
}
verbs! {
    mutable add_parameter(desc: *const octavo_parameter_desc, verdict: *mut octavo_verdict, id: *mut u32);
    mutable add_linear(desc: *const octavo_linear_desc, verdict: *mut octavo_verdict, id: *mut u32);
    mutable seal(sink: *const octavo_slot_sink);
    shared linear_plan(linear: u32, out: *mut octavo_linear_plan);
    shared quantize_weight(c: *const octavo_weight_call);
    shared linear_forward(c: *const octavo_forward_call);
    shared linear_backward(c: *const octavo_backward_call);
    shared end_step(c: *const octavo_step_call);
}

// SAFETY: null functions, numbers and null texts, which later headers may add to.
const NO_BACKEND: octavo_backend = unsafe { transmute([0_u8; size_of::<octavo_backend>()]) };
const NO_PLUGIN: octavo_plugin = unsafe { transmute([0_u8; size_of::<octavo_plugin>()]) };

struct Tables<B>(B);

impl<B: Plugin> Tables<B> {
    const BACKEND: &'static octavo_backend = &octavo_backend {
        size: size_of::<octavo_backend>() as u32,
        kind: OCTAVO_KIND_BACKEND,
        list_options: Some(list_options::<B>),
        check_session: Some(check::<B>),
        open_session: Some(open::<B>),
        add_parameter: Some(add_parameter::<B>),
        add_linear: Some(add_linear::<B>),
        seal: Some(seal::<B>),
        linear_plan: Some(linear_plan::<B>),
        quantize_weight: Some(quantize_weight::<B>),
        linear_forward: Some(linear_forward::<B>),
        linear_backward: Some(linear_backward::<B>),
        end_step: Some(end_step::<B>),
        close_session: Some(close::<B>),
        ..NO_BACKEND
    };
    const PLUGIN: &'static octavo_plugin = &octavo_plugin {
        size: size_of::<octavo_plugin>() as u32,
        kind: OCTAVO_KIND_PLUGIN,
        abi_major: OCTAVO_ABI_MAJOR,
        abi_minor: OCTAVO_TARGET_MINOR,
        id: borrow(B::ID),
        version: borrow(B::VERSION),
        get_interface: Some(get_interface::<B>),
        ..NO_PLUGIN
    };
}

unsafe extern "C" fn get_interface<B: Plugin>(id: octavo_str) -> *const c_void {
    let mine = constant(OCTAVO_BACKEND_ID);
    let bytes =
        |text: octavo_str| std::slice::from_raw_parts(text.data.cast::<u8>(), text.size as usize);
    if id.size == mine.size && bytes(id) == bytes(mine) {
        return (Tables::<B>::BACKEND as *const octavo_backend).cast();
    }
    null()
}

/// OCTAVO_PLUGIN_SYMBOL
///
/// # Safety
/// `host` is a host of the contract, valid until the process ends.
pub unsafe fn query<B: Plugin>(
    host: *const octavo_host,
    out: *mut *const octavo_plugin,
) -> octavo_status {
    guard(Host::new(host), B::ID, "octavo_plugin_query_1", || {
        let given = take(host);
        let minors = (i64::from(given.abi_minor), i64::from(OCTAVO_TARGET_MINOR));
        if given.abi_major != OCTAVO_ABI_MAJOR || minors.0 < minors.1 {
            return Err(Error::new(OCTAVO_INCOMPATIBLE, ""));
        }
        listen();
        HOST.store(host as *mut octavo_host, Ordering::Release);
        out.write(Tables::<B>::PLUGIN);
        Ok(())
    })
}

// An attribute takes no constant, so plugin! repeats the text.
const _: () = assert!(matches!(OCTAVO_PLUGIN_SYMBOL, b"octavo_plugin_query_rc4\0"));

/// The plugin's one symbol, once in a crate of type cdylib. Id and version are those of its
/// Cargo.toml, unless they are given: `plugin!(Mine, "id", "1.0.0")`.
#[macro_export]
macro_rules! plugin {
    ($backend:ty) => {
        $crate::plugin!($backend, env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    };
    ($backend:ty, $id:expr, $version:expr) => {
        impl $crate::Plugin for $backend {
            const ID: &'static str = $id;
            const VERSION: &'static str = $version;
        }
        /// # Safety
        /// As octavo/plugin.h states it.
        #[export_name = "octavo_plugin_query_rc4"]
        pub unsafe extern "C" fn octavo_plugin_query_1(
            host: *const $crate::sys::octavo_host,
            out: *mut *const $crate::sys::octavo_plugin,
        ) -> $crate::sys::octavo_status {
            $crate::query::<$backend>(host, out)
        }
    };
}
