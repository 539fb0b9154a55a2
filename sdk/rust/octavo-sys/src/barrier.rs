//! No panic leaves a plugin: it becomes a diagnostic and OCTAVO_INTERNAL.
use std::borrow::Cow;
use std::cell::RefCell;
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::sync::Once;

use crate::growable::{fresh, take};
use crate::sys::*;
use crate::text::borrow;

#[cfg(panic = "abort")]
compile_error!("a plugin is built with panic = \"unwind\": with \"abort\" a panic ends the host");

/// What a verb answers.
pub type Done = Result<(), Error>;

/// Why a verb fails. The text says what was expected and what was found; the verb's name is put in
/// front of it.
#[derive(Debug, Clone)]
pub struct Error {
    status: octavo_status,
    text: Cow<'static, str>,
}

impl Error {
    pub fn new(status: octavo_status, text: impl Into<Cow<'static, str>>) -> Self {
        Error { status, text: text.into() }
    }
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Error::new(OCTAVO_INVALID, text)
    }
    pub fn unsupported(text: impl Into<Cow<'static, str>>) -> Self {
        Error::new(OCTAVO_UNSUPPORTED, text)
    }
    /// A function of the host or of the kernels failed, and has said why.
    pub(crate) fn check(status: octavo_status) -> Done {
        if status == OCTAVO_OK {
            return Ok(());
        }
        Err(Error::new(status, ""))
    }
    pub fn status(&self) -> octavo_status {
        self.status
    }
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The host's services, copied from its table.
#[derive(Clone, Copy)]
pub(crate) struct Host(octavo_host);

// SAFETY: a host's functions may be called from any thread.
unsafe impl Send for Host {}
unsafe impl Sync for Host {}

impl Host {
    /// # Safety
    /// `host` is null or what the contract calls a host, valid as long as this is used.
    pub unsafe fn new(host: *const octavo_host) -> Option<Self> {
        if host.is_null() {
            return None;
        }
        Some(Host(take(host)))
    }

    pub fn fail(&self, domain: &str, status: octavo_status, text: &str) {
        let mut d: octavo_diagnostic = fresh();
        d.code = status;
        d.severity = OCTAVO_SEVERITY_ERROR;
        d.domain = borrow(domain);
        d.text = borrow(text);
        if let Some(diagnose) = self.0.diagnose {
            // SAFETY: the host outlives the call, and everything that `d` refers to does.
            unsafe { diagnose(self.0.ctx, &d) };
        }
    }
}

thread_local! {
    static PANIC: RefCell<String> = RefCell::new(String::new());
}

/// Keeps a panic's text and place for its diagnostic, and prints nothing. The hook is this
/// library's own, as its copy of std is.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_hook(Box::new(|info| {
            let text = match info.payload().downcast_ref::<&str>() {
                Some(text) => text,
                None => info.payload().downcast_ref::<String>().map_or("", |text| text),
            };
            let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line()));
            let text = format!("panicked: {text}{}", place.unwrap_or_default());
            let _ = PANIC.try_with(|last| *last.borrow_mut() = text);
        }));
    });
}

/// Runs the body of a verb.
pub(crate) fn guard(
    host: Option<Host>,
    domain: &str,
    verb: &str,
    body: impl FnOnce() -> Done,
) -> octavo_status {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OCTAVO_OK,
        Ok(Err(error)) => error,
        Err(payload) => {
            // Its own drop may panic, too.
            std::mem::forget(payload);
            let text = PANIC.try_with(|last| last.take()).unwrap_or_default();
            Error::new(OCTAVO_INTERNAL, if text.is_empty() { "panicked".into() } else { text })
        }
    };
    // An answer that is no failure would be taken for success.
    let status = if error.status == OCTAVO_OK { OCTAVO_INTERNAL } else { error.status };
    if let (Some(host), false) = (host, error.text.is_empty()) {
        let colon = if error.text.starts_with('"') { "" } else { ":" };
        host.fail(domain, status, &format!("{verb}{colon} {}", error.text));
    }
    status
}
