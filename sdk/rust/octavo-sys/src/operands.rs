//! What casts write and products read: views of memory that belongs to the host.
//!
//! None of them gives an address to the author's code, and none outlives the call that it is of.
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::sys::*;

/// A matrix, plain or of codes.
///
/// ```
/// fn used_within_its_call<'c>(c: &octavo_sys::ForwardCall<'c>) -> octavo_sys::Tensor<'c> { c.x }
/// ```
/// ```compile_fail
/// fn kept<'c>(c: &octavo_sys::ForwardCall<'c>) -> octavo_sys::Tensor<'static> { c.x }
/// ```
#[derive(Clone, Copy)]
pub struct Tensor<'c> {
    pub(crate) raw: octavo_tensor,
    call: PhantomData<&'c ()>,
}

impl<'c> Tensor<'c> {
    pub(crate) fn new(data: *mut c_void, rows: i64, cols: i64, dtype: u32) -> Self {
        let raw = octavo_tensor { data, rows, cols, stride: cols, dtype, reserved: 0 };
        Tensor { raw, call: PhantomData }
    }
    /// # Safety
    /// `tensor` is null or a tensor of the call whose lifetime is 'c.
    pub(crate) unsafe fn of(tensor: *const octavo_tensor) -> Option<Self> {
        if tensor.is_null() {
            return None;
        }
        Some(Tensor { raw: tensor.read(), call: PhantomData })
    }
    pub fn rows(&self) -> i64 {
        self.raw.rows
    }
    pub fn cols(&self) -> i64 {
        self.raw.cols
    }
    pub fn dtype(&self) -> u32 {
        self.raw.dtype
    }
    /// For a call of the kernels that is passed to `Pass::run`. The address may be a GPU's.
    pub fn raw(&self) -> octavo_tensor {
        self.raw
    }
    pub(crate) fn width(&self) -> i64 {
        width(self.raw.dtype)
    }
    /// Rows [first, first + count).
    pub(crate) fn slice(mut self, first: i64, count: i64) -> Self {
        self.raw.data = skip(self.raw.data, first * self.raw.stride * self.width());
        self.raw.rows = count;
        self
    }
    /// The upper left corner.
    pub(crate) fn corner(mut self, rows: i64, cols: i64) -> Self {
        self.raw.rows = rows;
        self.raw.cols = cols;
        self
    }
}

/// Bytes of an element.
pub(crate) fn width(dtype: u32) -> i64 {
    i64::from(dtype >> 8) / 8
}

/// `bytes` behind an address; measuring, there is none.
pub(crate) fn skip(at: *mut c_void, bytes: i64) -> *mut c_void {
    if at.is_null() {
        return at;
    }
    at.cast::<u8>().wrapping_offset(bytes as isize).cast()
}

/// Float32 values of a slot or of the workspace; null where the host wants nothing recorded.
#[derive(Clone, Copy)]
pub struct Floats<'c> {
    pub(crate) data: *mut f32,
    pub(crate) count: i64,
    call: PhantomData<&'c ()>,
}

impl<'c> Floats<'c> {
    pub(crate) fn new(tensor: Tensor<'c>) -> Self {
        let data = tensor.raw.data.cast();
        Floats { data, count: tensor.rows() * tensor.cols(), call: PhantomData }
    }
    /// As for a tensor.
    pub fn raw(&self) -> *mut f32 {
        self.data
    }
    pub(crate) fn none() -> Self {
        Floats { data: null_mut(), count: 0, call: PhantomData }
    }
}

/// A matrix [R, C] in codes in its own order, transposed, or both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    Rows,
    Columns,
    Both,
}
impl Directions {
    pub fn has_rows(self) -> bool {
        self != Directions::Columns
    }
    pub fn has_columns(self) -> bool {
        self != Directions::Rows
    }
}

/// Codes [R, C], their transpose [C, R], or both, with one scale_inv.
#[derive(Clone, Copy)]
pub struct Codes<'c> {
    pub(crate) rows: Option<Tensor<'c>>,
    pub(crate) columns: Option<Tensor<'c>>,
    pub(crate) scale_inv: Floats<'c>,
}

impl<'c> Codes<'c> {
    pub(crate) fn new(
        rows: Option<Tensor<'c>>,
        columns: Option<Tensor<'c>>,
        scale_inv: Floats<'c>,
    ) -> Self {
        Codes { rows, columns, scale_inv }
    }
    /// For a product that sums over C.
    #[track_caller]
    pub fn by_rows(&self) -> Operand<'c> {
        match self.rows {
            Some(codes) => Operand { codes, scale_inv: Some(self.scale_inv), turned: false },
            None => panic!("these codes have no rows"),
        }
    }
    /// For a product that sums over R.
    #[track_caller]
    pub fn by_columns(&self) -> Operand<'c> {
        match self.columns {
            Some(codes) => Operand { codes, scale_inv: Some(self.scale_inv), turned: false },
            None => panic!("these codes have no columns"),
        }
    }
    pub(crate) fn dtype(&self) -> u32 {
        self.rows.or(self.columns).map_or(0, |codes| codes.dtype())
    }
}

/// One side of a product.
#[derive(Clone, Copy)]
pub struct Operand<'c> {
    pub(crate) codes: Tensor<'c>,
    /// None: a plain matrix.
    pub(crate) scale_inv: Option<Floats<'c>>,
    /// Stored as [k, rows].
    pub(crate) turned: bool,
}

impl<'c> Operand<'c> {
    /// A matrix of the host's as it is.
    pub fn plain(matrix: Tensor<'c>) -> Self {
        Operand { codes: matrix, scale_inv: None, turned: false }
    }
    /// Its transpose.
    pub fn transposed(matrix: Tensor<'c>) -> Self {
        Operand { codes: matrix, scale_inv: None, turned: true }
    }
    /// The dimension that the product sums over.
    pub(crate) fn summed(&mut self) -> &mut i64 {
        let raw = &mut self.codes.raw;
        if self.turned {
            &mut raw.rows
        } else {
            &mut raw.cols
        }
    }
    /// The other one.
    pub(crate) fn kept(&mut self) -> &mut i64 {
        let raw = &mut self.codes.raw;
        if self.turned {
            &mut raw.cols
        } else {
            &mut raw.rows
        }
    }
}

/// How a cast finds its scale. The default: from the matrix itself, which is current scaling.
#[derive(Clone, Copy)]
pub struct Cast<'c> {
    /// Set to 1 by an Inf or NaN. None: the session's flag, of a plain matrix.
    pub nonfinite: Floats<'c>,
    /// Accumulates the largest absolute value.
    pub amax: Floats<'c>,
    /// For OCTAVO_RULE_GIVEN.
    pub scale: Floats<'c>,
    /// OCTAVO_RULE_...
    pub rule: u32,
    /// A lower bound of amax.
    pub eps: f32,
}

impl Default for Cast<'_> {
    fn default() -> Self {
        let none = Floats::none();
        Cast { nonfinite: none, amax: none, scale: none, rule: OCTAVO_RULE_QUOTIENT, eps: 0.0 }
    }
}
