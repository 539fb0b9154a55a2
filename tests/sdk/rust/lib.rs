//! What the border of octavo-sys promises: panics and failures become statuses with a diagnostic, and
//! structs of another age are read as far as they reach.
//!
//! The backend here goes wrong where its option says so; host and kernels record what they get.
#![cfg(test)]
mod border_test;
mod host;
mod options_test;
mod wrong;
