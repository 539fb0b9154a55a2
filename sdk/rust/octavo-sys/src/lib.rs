//! Octavo's plugin ABI for Rust: [`sys`], bindings made from the C headers, and the parts of a safe side for
//! authors of backends.
/// What bindgen made of the headers.
#[allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::all)]
#[allow(deref_nullptr)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

mod barrier;
mod device;
pub mod growable;
pub mod options;
mod text;

pub use barrier::{Done, Error};
pub use device::{Device, Verdict, Verdicts};
pub use options::Options;
