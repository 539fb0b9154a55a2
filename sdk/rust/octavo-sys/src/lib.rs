//! Octavo's plugin ABI for Rust: [`sys`], bindings made from the C headers, and on top of it a
//! backend as a type with safe code only.
//!
//! ```ignore
//! octavo_sys::options! { pub struct Options { /** one sentence */ cache: bool = true } }
//! struct Mine { weight: MatrixSlot, nonfinite: FloatSlot }
//! impl Backend for Mine {
//!     type Options = Options;
//!     fn open(slots: &mut Slots, options: Options) -> Result<Self, Error> { ... }     // memory
//!     fn linear_forward<'c>(&self, p: &mut Pass<'c>, c: &ForwardCall<'c>) -> Done { ... }
//!     fn linear_backward<'c>(&self, p: &mut Pass<'c>, c: &BackwardCall<'c>) -> Done { ... }
//! }
//! octavo_sys::plugin!(Mine);
//! ```
//!
//! The crate does what is not the method: tables, options, verdicts, seal, plans, padding, and the
//! barrier at which a panic becomes OCTAVO_INTERNAL with a diagnostic. It has `octavo.backend/1`
//! with one scale for a tensor. [`Pass::run`] calls any other kernel.

/// What bindgen made of the headers.
#[allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::all)]
#[allow(deref_nullptr)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

mod backend;
mod barrier;
mod calls;
mod device;
pub mod growable;
mod operands;
pub mod options;
mod pass;
mod plan;
mod products;
mod seal;
mod session;
mod slots;
mod tables;
mod text;
mod verbs;

pub use backend::Backend;
pub use barrier::{Done, Error};
pub use calls::{Addresses, At, BackwardCall, ForwardCall, StepCall, WeightCall};
pub use device::{Device, Verdict, Verdicts};
pub use operands::{Cast, Codes, Directions, Floats, Operand, Tensor};
pub use options::Options;
pub use pass::{Kernel, Pass};
pub use slots::{
    CodesSlot, FloatSlot, Linear, MatrixSlot, Owner, Parameter, Shape, SlotRule, Slots,
};
pub use tables::{query, Plugin};
