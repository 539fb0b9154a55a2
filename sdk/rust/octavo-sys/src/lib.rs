//! Octavo's plugin ABI for Rust: [`sys`], bindings made from the C headers, and the parts of a safe side for
//! authors of backends.
/// What bindgen made of the headers.
#[allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::all)]
#[allow(deref_nullptr)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

mod barrier;
mod calls;
mod device;
pub mod growable;
mod operands;
pub mod options;
mod pass;
mod products;
mod seal;
mod slots;
mod text;

pub use barrier::{Done, Error};
pub use calls::{Addresses, At, BackwardCall, ForwardCall, StepCall, WeightCall};
pub use device::{Device, Verdict, Verdicts};
pub use operands::{Cast, Codes, Directions, Floats, Operand, Tensor};
pub use options::Options;
pub use pass::{Kernel, Pass};
pub use slots::{
    CodesSlot, FloatSlot, Linear, MatrixSlot, Owner, Parameter, Shape, SlotRule, Slots,
};
