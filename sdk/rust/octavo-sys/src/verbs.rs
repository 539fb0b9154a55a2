//! The verbs of a sealed session, around what the author wrote. They allocate nothing unless they fail.
use std::cell::Cell;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::backend::Backend;
use crate::barrier::{Done, Error};
use crate::calls::{Addresses, BackwardCall, ForwardCall, StepCall, WeightCall};
use crate::device::is_plain;
use crate::growable::{give, take};
use crate::operands::{Floats, Tensor};
use crate::pass::{bytes_of, Buffer, Pass};
use crate::session::{Session, MOST};
use crate::slots::{Linear, Parameter};
use crate::sys::*;

// SAFETY of each verb: its structs are the host's.
impl<B: Backend> Session<B> {
    fn sealed(&self, id: u32) -> Result<(&Linear, &Parameter, &octavo_linear_plan), Error> {
        let linear = self.objects.linears.get(id as usize);
        let planned = linear.and_then(|l| l.plan.as_ref().map(|plan| (l, plan)));
        let (linear, plan) = planned.ok_or_else(|| {
            let count = self.objects.sealed_linears;
            Error::invalid(format!("expected a sealed linear below {count}, found {id}"))
        })?;
        Ok((linear, &self.objects.parameters[linear.weight as usize], plan))
    }

    pub unsafe fn linear_plan(&self, linear: u32, out: *mut octavo_linear_plan) -> Done {
        give(*self.sealed(linear)?.2, out);
        Ok(())
    }

    pub unsafe fn quantize_weight(&self, c: *const octavo_weight_call) -> Done {
        let c = take(c);
        let id = c.parameter as usize;
        if id >= self.objects.sealed_parameters {
            return Err(Error::invalid("expected a sealed parameter"));
        }
        let parameter = &self.objects.parameters[id];
        if !parameter.is_linear_weight() {
            return Ok(());
        }
        let work = Buffer::new(c.workspace, parameter.workspace);
        let mut p = Pass::new(&self.device, 0, c.stream, work, Buffer::new(null_mut(), 0));
        let addresses = Addresses::new(&parameter.places, c.slots);
        p.flag = addresses.flag(self.flag);
        self.backend.quantize_weight(&mut p, &WeightCall { parameter, addresses })
    }

    pub unsafe fn linear_forward(&self, c: *const octavo_forward_call) -> Done {
        let c = take(c);
        let (linear, weight, plan) = self.sealed(c.linear)?;
        let (n, k) = (weight.rows, weight.cols);
        let x = Tensor::of(c.x).filter(|x| has_rows(*x));
        let (x, y) = x.zip(Tensor::of(c.y)).ok_or_else(|| {
            let text =
                "expected x [M, K] and y [M, N] with M from 0 to 2^40, found null or another M";
            Error::invalid(text)
        })?;
        if c.flags & OCTAVO_FORWARD_EVALUATION != 0 && !c.saved.is_null() {
            return Err(Error::invalid(
                "expected saved null with OCTAVO_FORWARD_EVALUATION, found an address; drop the flag where a backward follows",
            ));
        }
        let m = x.rows();
        let bias = Tensor::of(c.bias);
        check_matrix(linear, "x", Some(x), (m, k), plan.flags)?;
        check_matrix(linear, "y", Some(y), (m, n), plan.flags)?;
        check_matrix(linear, "bias", bias, (1, n), 0)?;
        let work = Buffer::new(c.workspace, bytes_of(&plan.forward_workspace, m));
        let saved = Buffer::new(c.saved, bytes_of(&plan.saved, m));
        let mut p = Pass::new(&self.device, m, c.stream, work, saved);
        let call = ForwardCall {
            linear,
            weight,
            x,
            y,
            bias,
            flags: c.flags,
            saves: !c.saved.is_null(),
            addresses: Addresses::new(&linear.places, c.slots),
        };
        p.flag = call.flag(self.flag);
        self.backend.linear_forward(&mut p, &call)
    }

    pub unsafe fn linear_backward(&self, c: *const octavo_backward_call) -> Done {
        let c = take(c);
        let (linear, weight, plan) = self.sealed(c.linear)?;
        let (n, k) = (weight.rows, weight.cols);
        let (x, dx, db) = (Tensor::of(c.x), Tensor::of(c.dx), Tensor::of(c.db));
        let dy = Tensor::of(c.dy).filter(|dy| has_rows(*dy)).ok_or_else(|| {
            Error::invalid("expected dy [M, N] with M from 0 to 2^40, found null or another M")
        })?;
        let skips = weight.is_frozen() || c.flags & OCTAVO_BACKWARD_SKIP_WEIGHT != 0;
        let dw = Tensor::of(c.dw).filter(|_| !skips);
        let m = dy.rows();
        check_matrix(linear, "dy", Some(dy), (m, n), plan.flags)?;
        check_matrix(linear, "dx", dx, (m, k), plan.flags)?;
        if plan.flags & OCTAVO_LINEAR_NEEDS_X != 0 && m != 0 {
            check_matrix(linear, "x", x, (m, k), plan.flags)?;
        }
        check_matrix(linear, "dw", dw, (n, k), 0)?;
        check_matrix(linear, "db", db, (1, n), 0)?;
        let saved_bytes = bytes_of(&plan.saved, m);
        if saved_bytes > 0 && c.saved.is_null() && m > 0 && dw.is_some() {
            let text = "expected saved as linear_forward wrote it, found null";
            return Err(Error::invalid(text));
        }
        let work = Buffer::new(c.workspace, bytes_of(&plan.backward_workspace, m));
        // Only read: the address is not const because the struct of a tensor serves both.
        let saved = Buffer::new(c.saved as *mut c_void, saved_bytes);
        let mut p = Pass::new(&self.device, m, c.stream, work, saved);
        let call = BackwardCall {
            linear,
            weight,
            dy,
            dx,
            dw,
            db,
            x,
            asks_for_x: Cell::new(false),
            flags: c.flags,
            addresses: Addresses::new(&linear.places, c.slots),
        };
        p.flag = call.flag(self.flag);
        self.backend.linear_backward(&mut p, &call)
    }

    /// Before the first seal the session has no slots, so there is nothing to do.
    pub unsafe fn end_step(&self, c: *const octavo_step_call) -> Done {
        let c = take(c);
        if self.objects.session.is_empty() {
            return Ok(());
        }
        let nothing = Buffer::new(null_mut(), 0);
        let mut p = Pass::new(&self.device, 0, c.stream, nothing, nothing);
        let call = StepCall { addresses: Addresses::new(&self.objects.session, c.slots) };
        self.backend.end_step(&mut p, &call)?;
        for cleared in &self.objects.cleared {
            let data: *mut c_void = c.slots.add(cleared.position as usize).read();
            if !data.is_null() {
                p.clear(Floats::new(Tensor::new(data, 1, cleared.count, OCTAVO_F32)))?;
            }
        }
        Ok(())
    }
}

fn has_rows(tensor: Tensor<'_>) -> bool {
    (0..=MOST).contains(&tensor.rows())
}

/// OCTAVO_LINEAR_DECLINES_... of a dtype.
pub(crate) fn declined_flag(dtype: u32) -> u32 {
    match dtype {
        OCTAVO_F32 => OCTAVO_LINEAR_DECLINES_F32,
        OCTAVO_BF16 => OCTAVO_LINEAR_DECLINES_BF16,
        OCTAVO_F16 => OCTAVO_LINEAR_DECLINES_F16,
        _ => 0,
    }
}

/// One matrix of a call. x, y, dy and dx may be declined by the plan, others are not.
fn check_matrix(
    linear: &Linear,
    name: &str,
    tensor: Option<Tensor<'_>>,
    (rows, cols): (i64, i64),
    declined: u32,
) -> Done {
    let octavo_tensor { data, rows: r, cols: c, stride, dtype, reserved } = match tensor {
        Some(tensor) => tensor.raw(),
        None => return Ok(()),
    };
    if r != rows || c != cols || (!data.is_null() && stride < cols) {
        return Err(Error::invalid(format!(
            "{}: expected {name} of [{rows}, {cols}] with a stride of {cols} or more, found [{r}, {c}] with stride {stride}",
            linear.name
        )));
    }
    if is_plain(dtype) && declined_flag(dtype) & declined == 0 && reserved == 0 {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{}: expected {name} in f32, bf16 or f16, but no dtype that the plan declines by OCTAVO_LINEAR_DECLINES_..., and reserved 0; convert before the call",
        linear.name
    )))
}
