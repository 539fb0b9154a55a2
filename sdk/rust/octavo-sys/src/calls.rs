//! The calls of the verbs, with slots by handle.
//!
//! Measuring, every address is null and everything optional is wanted, so that sizes cover each
//! call.
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::barrier::Error;
use crate::operands::{Floats, Tensor};
use crate::slots::{FloatSlot, Linear, Parameter, Place, NOWHERE};
use crate::sys::*;

/// The addresses of one object's list.
pub struct Addresses<'c> {
    places: &'c [Place],
    slots: *const *mut c_void,
    call: PhantomData<&'c ()>,
}

/// A handle of a slot, and what it gives in a call.
pub trait At<'c> {
    type Found;
    fn at(self, addresses: &Addresses<'c>) -> Self::Found;
}

impl<'c> Addresses<'c> {
    /// # Safety
    /// `slots` is null or the list of the object whose places these are.
    pub(crate) unsafe fn new(places: &'c [Place], slots: *const *mut c_void) -> Self {
        Addresses { places, slots, call: PhantomData }
    }
    /// The slot of a handle, or nothing where this object has none.
    pub fn at<H: At<'c>>(&self, handle: H) -> H::Found {
        handle.at(self)
    }
    pub(crate) fn flag(&self, slot: Option<FloatSlot>) -> Floats<'c> {
        slot.map_or(Floats::none(), |slot| self.at(slot))
    }
    pub(crate) fn tensor(&self, rule: usize) -> Tensor<'c> {
        let place = self.places.get(rule).copied().unwrap_or(NOWHERE);
        let mut data = null_mut();
        if !self.slots.is_null() && place.position != OCTAVO_NONE {
            // SAFETY: seal gave the list this many entries.
            data = unsafe { self.slots.add(place.position as usize).read() };
        }
        Tensor::new(data, place.rows, place.cols, place.dtype)
    }
}

/// quantize_weight
pub struct WeightCall<'c> {
    pub parameter: &'c Parameter,
    pub(crate) addresses: Addresses<'c>,
}

/// linear_forward: y = x w^T + bias
pub struct ForwardCall<'c> {
    pub linear: &'c Linear,
    pub weight: &'c Parameter,
    pub x: Tensor<'c>,
    pub y: Tensor<'c>,
    pub bias: Option<Tensor<'c>>,
    pub(crate) flags: u32,
    pub(crate) saves: bool,
    pub(crate) addresses: Addresses<'c>,
}

impl ForwardCall<'_> {
    pub fn m(&self) -> i64 {
        self.x.rows()
    }
    pub fn n(&self) -> i64 {
        self.weight.rows
    }
    pub fn k(&self) -> i64 {
        self.weight.cols
    }
    pub fn is_evaluation(&self) -> bool {
        self.flags & OCTAVO_FORWARD_EVALUATION != 0
    }
    /// Whether the gradient of the weight will follow, so that what it needs belongs into `saved`.
    pub fn keeps(&self) -> bool {
        self.saves && !self.weight.is_frozen()
    }
}

/// linear_backward: dx = dy w, dw += dy^T x, db += column sums of dy
pub struct BackwardCall<'c> {
    pub linear: &'c Linear,
    pub weight: &'c Parameter,
    pub dy: Tensor<'c>,
    /// None: not wanted, as for the next two.
    pub dx: Option<Tensor<'c>>,
    pub dw: Option<Tensor<'c>>,
    pub db: Option<Tensor<'c>>,
    pub(crate) x: Option<Tensor<'c>>,
    /// Measuring: whether the verb asked for x.
    pub(crate) asks_for_x: Cell<bool>,
    pub(crate) flags: u32,
    pub(crate) addresses: Addresses<'c>,
}

impl<'c> BackwardCall<'c> {
    pub fn m(&self) -> i64 {
        self.dy.rows()
    }
    pub fn n(&self) -> i64 {
        self.weight.rows
    }
    pub fn k(&self) -> i64 {
        self.weight.cols
    }
    /// x of the forward call. A backend that asks for it gets OCTAVO_LINEAR_NEEDS_X into its plan.
    pub fn x(&self) -> Result<Tensor<'c>, Error> {
        self.asks_for_x.set(true);
        if self.m() == 0 {
            return Ok(Tensor::new(null_mut(), 0, self.k(), self.dy.dtype()));
        }
        self.x.ok_or_else(|| {
            Error::invalid(
                "expected x [M, K] of the forward call, since the plan says OCTAVO_LINEAR_NEEDS_X",
            )
        })
    }
    /// Of dw and db: whether they are added to.
    pub fn accumulates(&self) -> bool {
        self.flags & OCTAVO_BACKWARD_OVERWRITE == 0
    }
}

/// end_step, with the session's slots
pub struct StepCall<'c> {
    pub(crate) addresses: Addresses<'c>,
}

macro_rules! addressed {
    ($($call:ident),*) => {
        $(impl<'c> Deref for $call<'c> {
            type Target = Addresses<'c>;
            fn deref(&self) -> &Addresses<'c> {
                &self.addresses
            }
        })*
    };
}
addressed!(WeightCall, ForwardCall, BackwardCall, StepCall);
