//! What a session runs on, and the verdicts on whether it can.
use std::os::raw::c_void;

use crate::barrier::{Error, Host};
use crate::growable::{fresh, give, take};
use crate::sys::*;
use crate::text::{borrow, kept};
use crate::verbs::declined_flag;

/// Whether a host has tensors of this dtype.
pub fn is_plain(dtype: u32) -> bool {
    [OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16].contains(&dtype)
}

/// `n` as a multiple of a power of two.
pub(crate) fn round_up(n: i64, power: i64) -> i64 {
    (n + power - 1) & !(power - 1)
}

/// Copied from the session's description, but for the options, which end with the call.
pub struct Device {
    pub(crate) host: Option<Host>,
    pub(crate) kernels: octavo_kernels,
    pub(crate) ctx: *mut c_void,
    caps: octavo_kernels_caps,
    flags: u64,
}

// SAFETY: the host's and the kernels' functions may be called from any thread.
unsafe impl Send for Device {}
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    /// `desc` is a session's description, whose pointers live as long as the session.
    pub(crate) unsafe fn new(desc: &octavo_session_desc) -> Self {
        Device {
            host: Host::new(desc.host),
            kernels: take(desc.kernels),
            ctx: desc.kernels_ctx,
            caps: take(desc.caps),
            flags: desc.flags,
        }
    }

    /// The kernels' answer about a call: `question` has the call and its formats.
    pub fn ask(&self, mut question: octavo_ability) -> octavo_ability {
        // SAFETY: the context is the one of these kernels; the question is ours.
        let status = self.kernels.ability.map(|ask| unsafe { ask(self.ctx, &mut question) });
        if status != Some(OCTAVO_OK) {
            question.decision = OCTAVO_DECLINE;
        }
        question
    }
    /// Whether codes of this dtype, with a scale for the tensor, can be written. Emulation counts
    /// where the device has nothing else.
    pub fn casts_to(&self, dtype: u32) -> bool {
        let mut question: octavo_ability = fresh();
        question.call = OCTAVO_KIND_QUANTIZE;
        question.dtype = dtype;
        let decision = self.ask(question).decision;
        decision == OCTAVO_ACCEPT || (decision == OCTAVO_ACCEPT_EMULATED && self.is_emulated())
    }
    /// OCTAVO_LINEAR_DECLINES_...: dtypes whose columns the kernels do not sum, or convert.
    pub(crate) fn declines(&self) -> u32 {
        let lacks = |call, dtype| {
            let mut question: octavo_ability = fresh();
            (question.call, question.dtype) = (call, dtype);
            self.ask(question).decision == OCTAVO_DECLINE
        };
        let all = [OCTAVO_BF16, OCTAVO_F16].into_iter();
        all.filter(|&d| lacks(OCTAVO_KIND_SUM, d) || lacks(OCTAVO_KIND_DEQUANTIZE, d))
            .fold(0, |flags, dtype| flags | declined_flag(dtype))
    }
    /// The device computes FP8 by other means than FP8 units.
    pub fn is_emulated(&self) -> bool {
        self.caps.flags & u64::from(OCTAVO_CAPS_EMULATED) != 0
    }
    /// Equal inputs must give equal bits.
    pub fn is_deterministic(&self) -> bool {
        self.flags & u64::from(OCTAVO_SESSION_DETERMINISTIC) != 0
    }
    /// M, N and K of FP8 products are multiples of this; the crate pads.
    pub fn alignment(&self) -> i64 {
        (self.caps.alignment as i64).max(1)
    }
    pub fn aligned(&self, n: i64) -> i64 {
        round_up(n, self.alignment())
    }
}

/// An answer to "can this run here?".
pub struct Verdict {
    pub(crate) decision: u32,
    reason: u32,
    text: &'static str,
    evidence: String,
}

impl Verdict {
    pub fn accept() -> Self {
        Verdict {
            decision: OCTAVO_ACCEPT,
            reason: OCTAVO_REASON_NONE,
            text: "",
            evidence: String::new(),
        }
    }
    /// `reason` is one of OCTAVO_REASON_..., the text one sentence.
    pub fn decline(reason: u32, text: &'static str) -> Self {
        Verdict { decision: OCTAVO_DECLINE, reason, text, evidence: String::new() }
    }
    /// What was found.
    pub fn found(mut self, evidence: impl Into<String>) -> Self {
        self.evidence = evidence.into();
        self
    }
    /// # Safety
    /// `out` is null or a verdict of the host's, zeroed but for size and kind.
    pub(crate) unsafe fn give(&self, level: u32, out: *mut octavo_verdict) {
        if !out.is_null() {
            give(self.as_raw(level), out);
        }
    }
    fn as_raw(&self, level: u32) -> octavo_verdict {
        let mut v: octavo_verdict = fresh();
        v.level = level;
        v.decision = self.decision;
        v.reason = self.reason;
        v.text = borrow(self.text);
        v.evidence = borrow(kept(&self.evidence));
        v
    }
}

/// Receives the verdicts of check_session. One refusal is enough, and nothing follows it.
pub struct Verdicts<'a> {
    device: &'a Device,
    sink: Option<octavo_verdict_sink>,
    refusal: Option<String>,
}

impl<'a> Verdicts<'a> {
    pub(crate) fn new(device: &'a Device, sink: Option<octavo_verdict_sink>) -> Self {
        Verdicts { device, sink, refusal: None }
    }
    fn add(&mut self, v: Verdict) {
        if let Some(octavo_verdict_sink { ctx, verdict: Some(verdict), .. }) = self.sink {
            // SAFETY: the sink's own context; what the verdict refers to is static.
            unsafe { verdict(ctx, &v.as_raw(OCTAVO_LEVEL_SESSION)) };
        }
        if v.decision == OCTAVO_DECLINE && self.refusal.is_none() {
            let found = if v.evidence.is_empty() { "" } else { "; found " };
            self.refusal = Some(format!("{}{found}{}", v.text, v.evidence));
        }
    }
    pub fn decline(&mut self, reason: u32, text: &'static str) {
        self.add(Verdict::decline(reason, text));
    }
    pub fn need_casts(&mut self, dtypes: &[u32]) {
        for dtype in dtypes.iter().filter(|dtype| !self.device.casts_to(**dtype)) {
            let text = "the kernels lack a dtype that this backend casts to";
            self.add(Verdict::decline(OCTAVO_REASON_DTYPE, text).found(match *dtype {
                OCTAVO_E4M3FN => "no float8_e4m3fn".to_owned(),
                OCTAVO_E5M2 => "no float8_e5m2".to_owned(),
                other => format!("no dtype {other:#06x}"),
            }));
        }
    }
    /// Calls besides casts: the kind of their struct, the dtype, and that of `b` or 0.
    pub fn need_calls(&mut self, calls: &[(u32, u32, u32)]) {
        for (call, dtype, b_dtype) in calls {
            let mut question: octavo_ability = fresh();
            (question.call, question.dtype, question.b_dtype) = (*call, *dtype, *b_dtype);
            if self.device.ask(question).decision == OCTAVO_DECLINE {
                let text = "the kernels lack a call that this backend makes";
                let found = format!("no call {call} of {dtype:#06x}");
                self.add(Verdict::decline(OCTAVO_REASON_KERNEL, text).found(found));
            }
        }
    }
    /// The last word, unless there was a refusal.
    pub fn accept(&mut self, text: &'static str) {
        if self.refusal.is_none() {
            let emulated = self.device.is_emulated();
            let decision = if emulated { OCTAVO_ACCEPT_EMULATED } else { OCTAVO_ACCEPT };
            self.add(Verdict { decision, text, ..Verdict::accept() });
        }
    }
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.refusal.map_or(Ok(()), |text| Err(Error::unsupported(text)))
    }
}
