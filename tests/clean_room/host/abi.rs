//! The part of the C ABI that this host uses, declared by hand from octavo/*.h.
//! Kernel calls are not declared as structs: `lazy.rs` describes their layout as words.

pub use std::ffi::c_void;
pub type Status = u32;
pub const OK: Status = 0;
pub const UNSUPPORTED: Status = 1;
pub const INVALID: Status = 2;
pub const SYMBOL: &str = "octavo_plugin_query_rc4\0";
pub const ALIGNMENT: usize = 64;
pub const NONE: u32 = u32::MAX;

pub const I32: u32 = 0x2000;
pub const F16: u32 = 0x1002;
pub const F32: u32 = 0x2002;
pub const BF16: u32 = 0x1004;
pub const DTYPES: [u32; 8] = [I32, 0x0801, F16, F32, BF16, 0x080a, 0x080c, 0x080e];

pub fn dtype_bytes(dtype: u32, count: usize) -> usize {
    (count * (dtype >> 8) as usize + 7) / 8
}

pub mod owner {
    pub const SESSION: u32 = 1;
    pub const PARAMETER: u32 = 2;
    pub const LINEAR: u32 = 3;
}
pub mod verb {
    pub const QUANTIZE_WEIGHT: usize = 0;
    pub const FORWARD: usize = 1;
    pub const BACKWARD: usize = 2;
    pub const END_STEP: usize = 3;
}
pub mod access {
    pub const NONE: u8 = 0;
}
pub mod role {
    pub const WEIGHT: u32 = 1;
    pub const GRADIENT: u32 = 3;
    pub const WEIGHT_CACHE: u32 = 11;
    pub const NONFINITE: u32 = 12;
}
pub const COMBINE_MAX: u32 = 1;
pub const COMBINE_SUM: u32 = 2;
pub const SLOT_NATIVE: u32 = 2;
pub const SLOT_REDUCE: u32 = 4;
pub const LINEAR_WEIGHT: u32 = 1;
pub const NEEDS_X: u32 = 1;
pub const GRADIENT_TENSOR: u32 = 1;
pub const OVERWRITE: u32 = 1;
pub const SKIP_WEIGHT: u32 = 2;
pub const DETERMINISTIC: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str {
    pub data: *const u8,
    pub size: u64,
}
impl Str {
    pub fn new(s: &str) -> Str {
        Str { data: s.as_ptr(), size: s.len() as u64 }
    }
    /// A copy of the text: at most 4096 bytes, without control characters.
    pub unsafe fn text(self) -> String {
        if self.size == 0 || self.data.is_null() {
            return String::new();
        }
        let bytes = std::slice::from_raw_parts(self.data, self.size.min(4096) as usize);
        let clean =
            |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
        String::from_utf8_lossy(bytes).chars().map(clean).collect()
    }
}

/// A struct that starts with its size and kind, where zero bytes are a valid value.
pub unsafe trait Grows: Sized {
    const KIND: u32;
    /// Zeroed, with size and kind.
    fn blank() -> Self {
        unsafe {
            let mut own: Self = std::mem::zeroed();
            let head = &mut own as *mut Self as *mut u32;
            *head = std::mem::size_of::<Self>() as u32;
            *head.add(1) = Self::KIND;
            own
        }
    }
    /// A copy of what the other side wrote, zeroed beyond it.
    unsafe fn take(given: *const Self) -> Self {
        let mut own: Self = std::mem::zeroed();
        let size = (*(given as *const u32) as usize).min(std::mem::size_of::<Self>());
        std::ptr::copy_nonoverlapping(given as *const u8, &mut own as *mut Self as *mut u8, size);
        *(&mut own as *mut Self as *mut u32) = size as u32;
        own
    }
}

macro_rules! grows {
    ($(#[$m:meta])* $name:ident = $kind:expr, $bytes:literal { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$m])*
        #[repr(C)]
        pub struct $name { pub size: u32, pub kind: u32, $(pub $field: $type),* }
        unsafe impl Grows for $name { const KIND: u32 = $kind; }
        const _: () = assert!(std::mem::size_of::<$name>() == $bytes);
    };
}

macro_rules! frozen {
    ($name:ident, $bytes:literal { $($field:ident: $type:ty),* $(,)? }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: $type),* }
        const _: () = assert!(std::mem::size_of::<$name>() == $bytes);
    };
}
frozen! { Value, 40 { kind: u32, reserved: u32, integer: i64, real: f64, text: Str } }
frozen! { OptionValue, 56 { name: Str, value: Value } }
frozen! { Device, 8 { kind: u32, index: i32 } }
frozen! { Tensor, 40 { data: *mut c_void, rows: i64, cols: i64, stride: i64, dtype: u32, reserved: u32 } }
frozen! { SlotUse, 24 { owner_kind: u32, owner: u32, slot: u32, first: u32, count: u32, reserved: u32 } }
frozen! { Extent, 24 { row_multiple: u64, bytes_per_row: u64, fixed_bytes: u64 } }
impl Extent {
    pub fn bytes(&self, rows: usize) -> usize {
        let m = self.row_multiple as usize;
        (rows + m - 1) / m * m * self.bytes_per_row as usize + self.fixed_bytes as usize
    }
}

grows! { Diagnostic = 1, 48 { code: Status, severity: u32, domain: Str, text: Str } }
grows! { Verdict = 2, 120 {
    level: u32, decision: u32, reason: u32, reserved: u32, text: Str, evidence: Str, remedy: Str,
    remedy_key: Str, remedy_value: Str, remedy_command: Str,
} }
grows! { VerdictSink = 3, 24 {
    ctx: *mut c_void, verdict: Option<unsafe extern "C" fn(*mut c_void, *const Verdict)>,
} }
grows! { Host = 4, 40 {
    abi_major: u32, abi_minor: u32, ctx: *mut c_void,
    diagnose: Option<unsafe extern "C" fn(*mut c_void, *const Diagnostic)>,
    get_extension: Option<unsafe extern "C" fn(*mut c_void, Str) -> *const c_void>,
} }
grows! { Plugin = 6, 56 {
    abi_major: u32, abi_minor: u32, id: Str, version: Str,
    get_interface: Option<unsafe extern "C" fn(Str) -> *const c_void>,
} }
pub type Query = unsafe extern "C" fn(*const Host, *mut *const Plugin) -> Status;

grows! { OpenDesc = 42, 88 {
    config_path: Str, config_text: Str, overrides: *const OptionValue, override_count: u64,
    plugin_dirs: *const Str, plugin_dir_count: u64, device: Device, host: *const Host,
} }

grows! { Slot = 7, 128 {
    id: u32, owner_kind: u32, owner: u32, role: u32, dtype: u32, flags: u32, combine: u32,
    shard: u32, scale_slot: u32, granularity: u32, rows: i64, cols: i64, initial: f64,
    access: [u8; 32], name: Str, labels: *const Str,
} }
grows! { SlotSink = 8, 32 {
    ctx: *mut c_void,
    slot: Option<unsafe extern "C" fn(*mut c_void, *const Slot) -> Status>,
    usage: Option<unsafe extern "C" fn(*mut c_void, *const SlotUse) -> Status>,
} }
grows! { OptionDesc = 9, 176 {
    name: Str, help: Str, initial: Value, low: Value, high: Value, choices: *const Str,
    choice_count: u64,
} }
grows! { OptionSink = 10, 24 {
    ctx: *mut c_void, option: Option<unsafe extern "C" fn(*mut c_void, *const OptionDesc) -> Status>,
} }
grows! { SessionDesc = 11, 72 {
    device: Device, host: *const Host, kernels: *const Kernels, caps: *const Caps,
    kernels_ctx: *mut c_void, options: *const OptionValue, option_count: u64, flags: u64,
} }
grows! { ParameterDesc = 12, 56 {
    name: Str, rows: i64, cols: i64, dtype: u32, gradient_dtype: u32, flags: u32, reserved: u32,
} }
grows! { LinearDesc = 13, 48 {
    name: Str, weight: u32, flags: u32, options: *const OptionValue, option_count: u64,
} }
grows! { LinearPlan = 14, 96 {
    flags: u32, gradient: u32, saved: Extent, forward_workspace: Extent,
    backward_workspace: Extent, weight_workspace: u64,
} }
grows! { WeightCall = 15, 40 {
    parameter: u32, flags: u32, stream: *mut c_void, slots: *const *mut c_void,
    workspace: *mut c_void,
} }
grows! { ForwardCall = 16, 72 {
    linear: u32, flags: u32, stream: *mut c_void, x: *const Tensor, y: *mut Tensor,
    bias: *const Tensor, slots: *const *mut c_void, saved: *mut c_void, workspace: *mut c_void,
} }
grows! { BackwardCall = 17, 88 {
    linear: u32, flags: u32, stream: *mut c_void, dy: *const Tensor, x: *const Tensor,
    dx: *mut Tensor, dw: *mut Tensor, db: *mut Tensor, slots: *const *mut c_void,
    saved: *const c_void, workspace: *mut c_void,
} }
grows! { StepCall = 18, 24 { stream: *mut c_void, slots: *const *mut c_void } }

pub type Session = *mut c_void;
type Add<T> = Option<unsafe extern "C" fn(Session, *const T, *mut Verdict, *mut u32) -> Status>;
pub type Verb<T> = Option<unsafe extern "C" fn(Session, *const T) -> Status>;
grows! { Backend = 19, 104 {
    list_options: Option<unsafe extern "C" fn(*const OptionSink) -> Status>,
    check_session: Option<unsafe extern "C" fn(*const SessionDesc, *const VerdictSink) -> Status>,
    open_session: Option<unsafe extern "C" fn(*const SessionDesc, *mut Session) -> Status>,
    add_parameter: Add<ParameterDesc>,
    add_linear: Add<LinearDesc>,
    seal: Option<unsafe extern "C" fn(Session, *const SlotSink) -> Status>,
    linear_plan: Option<unsafe extern "C" fn(Session, u32, *mut LinearPlan) -> Status>,
    quantize_weight: Verb<WeightCall>,
    linear_forward: Verb<ForwardCall>,
    linear_backward: Verb<BackwardCall>,
    end_step: Verb<StepCall>,
    close_session: Option<unsafe extern "C" fn(Session)>,
} }

grows! { Caps = 24, 48 { id: Str, flags: u64, alignment: u64, pack_rows: u64 } }
pub type Kernel = unsafe extern "C" fn(*mut c_void, *const c_void) -> Status;
pub const KERNEL_COUNT: usize = 12;
grows! {
    /// The functions from quantize to pack have one signature and are an array, in their order.
    Kernels = 36, 160 {
    probe_device: Option<unsafe extern "C" fn(Device, *const VerdictSink) -> Status>,
    open_device: Option<unsafe extern "C" fn(Device, *const Host, *mut *mut c_void) -> Status>,
    close_device: Option<unsafe extern "C" fn(*mut c_void)>,
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut Caps) -> Status>,
    ability: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status>,
    workspace_bytes: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut u64) -> Status>,
    calls: [Option<Kernel>; KERNEL_COUNT],
    get_extension: Option<unsafe extern "C" fn(*mut c_void, Str) -> *const c_void>,
} }
