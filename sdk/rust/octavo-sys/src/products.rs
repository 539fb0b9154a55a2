//! The kernels of a Pass: casts, products and sums.
use std::ptr::null;

use crate::barrier::Done;
use crate::device::is_plain;
use crate::growable::fresh;
use crate::operands::{Cast, Codes, Floats, Operand, Tensor};
use crate::pass::Pass;
use crate::sys::*;

fn scale_of(scale_inv: Floats<'_>) -> octavo_scale {
    // SAFETY: an address, numbers, and whatever later headers add, for which 0 means "as before".
    let mut scale: octavo_scale = unsafe { std::mem::zeroed() };
    scale.data = scale_inv.data.cast();
    scale.dtype = OCTAVO_F32;
    scale.granularity = OCTAVO_PER_TENSOR;
    scale
}

fn address<T>(value: &Option<T>) -> *const T {
    value.as_ref().map_or(null(), |value| value)
}

impl<'c> Pass<'c> {
    /// Every direction of `out` that is there, by the scale of the matrix itself.
    pub fn cast(&mut self, input: Tensor<'c>, out: Codes<'c>) -> Done {
        self.cast_with(input, out, Cast::default())
    }

    pub fn cast_with(&mut self, input: Tensor<'c>, out: Codes<'c>, how: Cast<'c>) -> Done {
        let (mut rows, mut columns) = (out.rows.map(|t| t.raw), out.columns.map(|t| t.raw));
        let scale_inv = scale_of(out.scale_inv);
        let mut q: octavo_quantize = fresh();
        q.in_ = &input.raw;
        if let Some(rows) = &mut rows {
            q.out = rows;
        }
        if let Some(columns) = &mut columns {
            q.out_t = columns;
        }
        q.out_scale_inv = &scale_inv;
        let is_watched = how.nonfinite.data.is_null() && is_plain(input.dtype());
        q.nonfinite = if is_watched { self.flag.data } else { how.nonfinite.data };
        q.amax = how.amax.data;
        q.scale = how.scale.data;
        q.rule = how.rule;
        q.eps = how.eps;
        q.format_max = if out.dtype() == OCTAVO_E5M2 { 57344.0 } else { 448.0 };
        // SAFETY: everything is of this call.
        unsafe { self.run(|k| k.quantize, q) }
    }

    /// d = a b^T + bias, or d += a b^T; padding of the operands does not show.
    pub fn multiply(
        &mut self,
        mut a: Operand<'c>,
        mut b: Operand<'c>,
        d: Tensor<'c>,
        bias: Option<Tensor<'c>>,
        accumulate: bool,
    ) -> Done {
        // Operands may hold more than this product has, `saved` more of M. Of the summed dimension
        // the rest is zeros.
        let summed = *a.summed().min(b.summed());
        (*a.summed(), *b.summed()) = (summed, summed);
        if a.scale_inv.is_none() {
            return self.multiply_once(a, b, d, bias, accumulate);
        }
        *a.kept() = self.device().aligned(d.rows()).min(*a.kept());
        *b.kept() = self.device().aligned(d.cols()).min(*b.kept());
        if *b.kept() != d.cols() {
            return self.multiply_wide(a, b, d, bias, accumulate);
        }
        // Only the last rows of a are padding: what d has room for is computed in place, and the
        // rest aside. With all of its rows, a needs as much of the kernels as each of the two.
        let whole = self.device().alignment();
        if whole == 1 {
            return self.multiply_once(a, b, d, bias, accumulate);
        }
        if self.is_measuring() {
            self.matrix(whole, *b.kept(), OCTAVO_F32)?;
            return self.multiply_once(a, b, d, bias, accumulate);
        }
        let rows = *a.kept();
        let front = if rows == d.rows() { rows } else { d.rows() / whole * whole };
        if front > 0 {
            let part = Operand { codes: a.codes.slice(0, front), ..a };
            self.multiply_once(part, b, d.slice(0, front), bias, accumulate)?;
        }
        if front == d.rows() {
            return Ok(());
        }
        let part = Operand { codes: a.codes.slice(front, rows - front), ..a };
        self.multiply_wide(part, b, d.slice(front, d.rows() - front), bias, accumulate)
    }

    /// The operands as they are, padding and all.
    fn multiply_once(
        &mut self,
        a: Operand<'c>,
        b: Operand<'c>,
        d: Tensor<'c>,
        bias: Option<Tensor<'c>>,
        accumulate: bool,
    ) -> Done {
        let (a_scale, b_scale) = (a.scale_inv.map(scale_of), b.scale_inv.map(scale_of));
        let (bias, mut d) = (bias.map(|bias| bias.raw), d.raw);
        let mut g: octavo_gemm = fresh();
        g.a = &a.codes.raw;
        g.b = &b.codes.raw;
        g.d = &mut d;
        g.bias = address(&bias);
        g.a_scale_inv = address(&a_scale);
        g.b_scale_inv = address(&b_scale);
        g.accumulate = u32::from(accumulate);
        g.layout |= if a.turned { OCTAVO_GEMM_A_KM } else { 0 };
        g.layout |= if b.turned { OCTAVO_GEMM_B_KN } else { 0 };
        // SAFETY: everything is of this call.
        unsafe { self.run(|k| k.gemm, g) }
    }

    /// The same into the workspace, and from there to d what d has room for.
    fn multiply_wide(
        &mut self,
        mut a: Operand<'c>,
        mut b: Operand<'c>,
        d: Tensor<'c>,
        mut bias: Option<Tensor<'c>>,
        accumulate: bool,
    ) -> Done {
        let (rows, cols) = (*a.kept(), *b.kept());
        let room = self.matrix(rows, cols, OCTAVO_F32)?;
        // One rounding to the host's dtype, in the kernel; a sum is rounded after the addition.
        let dtype = if accumulate { OCTAVO_F32 } else { d.dtype() };
        let wide = Tensor::new(room.raw.data, rows, cols, dtype);
        if let Some(narrow) = bias.filter(|bias| bias.cols() != cols) {
            let padded = self.matrix(1, cols, narrow.dtype())?;
            self.clear_tensor(padded)?;
            self.add(narrow, padded.corner(1, narrow.cols()), false)?;
            bias = Some(padded);
        }
        self.multiply_once(a, b, wide, bias, false)?;
        self.add(wide.corner(d.rows(), d.cols()), d, accumulate)
    }

    /// out = input in another dtype, or out += input; both plain.
    pub fn add(&mut self, input: Tensor<'c>, out: Tensor<'c>, accumulate: bool) -> Done {
        let mut out = out.raw;
        let mut c: octavo_dequantize = fresh();
        c.in_ = &input.raw;
        c.out = &mut out;
        c.accumulate = u32::from(accumulate);
        // SAFETY: everything is of this call.
        unsafe { self.run(|k| k.dequantize, c) }
    }

    /// db: column sums of dy before it is cast, through float32, since db may have another dtype.
    pub fn add_column_sums(&mut self, dy: Tensor<'c>, db: Tensor<'c>, accumulate: bool) -> Done {
        let sums = self.matrix(1, dy.cols(), OCTAVO_F32)?;
        let mut c: octavo_sum = fresh();
        c.in_ = &dy.raw;
        c.out = sums.raw.data;
        // SAFETY: everything is of this call.
        unsafe { self.run(|k| k.sum_rows, c) }?;
        self.add(sums, db, accumulate)
    }

    /// The largest absolute value of `input`, and whether an element is Inf or NaN.
    pub fn record_amax(
        &mut self,
        input: Tensor<'c>,
        amax: Floats<'c>,
        nonfinite: Floats<'c>,
    ) -> Done {
        let mut c: octavo_compute_amax = fresh();
        c.in_ = &input.raw;
        c.amax = amax.data;
        c.nonfinite = nonfinite.data;
        // SAFETY: everything is of this call.
        unsafe { self.run(|k| k.compute_amax, c) }
    }

    /// Zeros.
    pub fn clear(&mut self, floats: Floats<'c>) -> Done {
        self.clear_tensor(Tensor::new(floats.data.cast(), 1, floats.count, OCTAVO_F32))
    }
    fn clear_tensor(&mut self, dense: Tensor<'c>) -> Done {
        let mut c: octavo_copy = fresh();
        c.out = dense.raw.data;
        c.bytes = (dense.rows() * dense.cols() * dense.width()) as u64;
        // SAFETY: everything is of this call.
        unsafe { self.run(|k| k.copy, c) }
    }
}
