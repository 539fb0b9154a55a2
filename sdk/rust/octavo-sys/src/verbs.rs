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
        let (x, y) = match (Tensor::of(c.x), Tensor::of(c.y)) {
            (Some(x), Some(y)) if has_rows(x, k) && has_rows(y, n) && x.rows() == y.rows() => (x, y),
            _ => {
                return Err(Error::invalid(
                    "expected x [M, K] and y [M, N] with M from 0 to 2^40 and the K and N of the weight [N, K]",
                ))
            }
        };
        if c.flags & OCTAVO_FORWARD_EVALUATION != 0 && !c.saved.is_null() {
            return Err(Error::invalid(
                "expected saved null with OCTAVO_FORWARD_EVALUATION, found an address; drop the flag where a backward follows",
            ));
        }
        refuse_declined(plan.flags, linear, &[Some(x), Some(y)])?;
        let m = x.rows();
        let work = Buffer::new(c.workspace, bytes_of(&plan.forward_workspace, m));
        let saved = Buffer::new(c.saved, bytes_of(&plan.saved, m));
        let mut p = Pass::new(&self.device, m, c.stream, work, saved);
        let call = ForwardCall {
            linear,
            weight,
            x,
            y,
            bias: Tensor::of(c.bias),
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
        let dx = Tensor::of(c.dx);
        let dy = match Tensor::of(c.dy) {
            Some(dy)
                if has_rows(dy, n)
                    && dx.map_or(true, |dx| has_rows(dx, k) && dx.rows() == dy.rows()) =>
            {
                dy
            }
            _ => {
                return Err(Error::invalid(
                    "expected dy [M, N] and dx [M, K] with M from 0 to 2^40 and the N and K of the weight [N, K]",
                ))
            }
        };
        let skips = weight.is_frozen() || c.flags & OCTAVO_BACKWARD_SKIP_WEIGHT != 0;
        let dw = Tensor::of(c.dw).filter(|_| !skips);
        if dw.map_or(false, |dw| dw.rows() != n || dw.cols() != k) {
            return Err(Error::invalid("expected dw [N, K] with the N and K of the weight [N, K]"));
        }
        refuse_declined(plan.flags, linear, &[Some(dy), dx])?;
        let m = dy.rows();
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
            db: Tensor::of(c.db),
            x: Tensor::of(c.x),
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

fn has_rows(tensor: Tensor<'_>, cols: i64) -> bool {
    (0..=MOST).contains(&tensor.rows()) && tensor.cols() == cols
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

fn refuse_declined(declined: u32, linear: &Linear, operands: &[Option<Tensor<'_>>]) -> Done {
    let takes = |t: &Tensor<'_>| is_plain(t.dtype()) && declined_flag(t.dtype()) & declined == 0;
    if operands.iter().flatten().all(takes) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{}: expected f32, bf16 or f16 that the plan does not decline (OCTAVO_LINEAR_DECLINES_...), found another dtype; convert before the call",
        linear.name
    )))
}
