//! A session, and the verbs that set it up, around what the author wrote.
use crate::backend::Backend;
use crate::barrier::{Done, Error};
use crate::device::{is_plain, Device, Verdict, Verdicts};
use crate::growable::take;
use crate::options::parse;
use crate::pass::MEASURED_ROWS;
use crate::seal::{check_rules, Objects, Sealed};
use crate::slots::{FloatSlot, Linear, Parameter, SlotRule, Slots};
use crate::sys::*;
use crate::text::owned;

/// With at most this many rows, columns and calls' rows every size stays far below 2^63.
pub(crate) const MOST: i64 = 1 << 40;

pub(crate) struct Session<B> {
    pub device: Device,
    pub backend: B,
    rules: Vec<SlotRule>,
    pub objects: Objects,
    /// The slot of nonfinite(), which casts set.
    pub flag: Option<FloatSlot>,
}

fn judge<B: Backend>(device: &Device, options: &B::Options, verdicts: &mut Verdicts<'_>) {
    if MEASURED_ROWS % device.alignment() != 0 {
        let text = "the kernels want sizes of a multiple that does not divide 256";
        verdicts.decline(OCTAVO_REASON_KERNEL, text);
    }
    B::check(device, options, verdicts);
}

/// # Safety
/// Both are the host's.
pub(crate) unsafe fn check_session<B: Backend>(
    desc: *const octavo_session_desc,
    sink: *const octavo_verdict_sink,
) -> Done {
    let desc = take(desc);
    let device = Device::new(&desc);
    let options = parse::<B::Options>(&desc)?;
    judge::<B>(&device, &options, &mut Verdicts::new(&device, Some(take(sink))));
    Ok(())
}

impl<B: Backend> Session<B> {
    /// # Safety
    /// `desc` is the host's.
    pub unsafe fn open(desc: *const octavo_session_desc) -> Result<Self, Error> {
        let desc = take(desc);
        let device = Device::new(&desc);
        let options = parse::<B::Options>(&desc)?;
        let mut verdicts = Verdicts::new(&device, None);
        judge::<B>(&device, &options, &mut verdicts);
        verdicts.finish()?;
        let mut slots = Slots::new(&device);
        let backend = B::open(&mut slots, options)?;
        let rules = slots.rules;
        check_rules(&rules)?;
        let flag = rules.iter().position(|rule| rule.role == OCTAVO_ROLE_NONFINITE).map(FloatSlot);
        Ok(Session { device, backend, rules, objects: Objects::default(), flag })
    }

    /// # Safety
    /// All are the host's, as for the other verbs.
    pub unsafe fn add_parameter(
        &mut self,
        desc: *const octavo_parameter_desc,
        verdict: *mut octavo_verdict,
        id: *mut u32,
    ) -> Done {
        let d: octavo_parameter_desc = take(desc);
        let name = owned(d.name);
        let known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
        if d.reserved != 0 || d.flags & !known != 0 {
            return Err(Error::invalid(format!(
                "\"{name}\": expected reserved 0 and known flags, found reserved {}, flags {}",
                d.reserved, d.flags
            )));
        }
        let (rows, cols) = (d.rows, d.cols);
        if rows < 1 || cols < 1 || rows > MOST || cols > MOST || rows > (MOST << 10) / cols {
            return Err(Error::invalid(format!(
                "\"{name}\": expected 1 to 2^40 rows and columns and at most 2^50 elements, found [{rows}, {cols}]"
            )));
        }
        let parameter = Parameter {
            id: self.objects.parameters.len() as u32,
            name,
            rows,
            cols,
            dtype: d.dtype,
            gradient_dtype: d.gradient_dtype,
            flags: d.flags,
            places: Vec::new(),
            workspace: 0,
        };
        let answer = if is_plain(d.dtype) && (parameter.is_frozen() || is_plain(d.gradient_dtype)) {
            self.backend.add_parameter(&parameter)
        } else {
            let text = "expected a parameter and a gradient of float32, bfloat16 or float16";
            Verdict::decline(OCTAVO_REASON_DTYPE, text)
        };
        keep(parameter, &mut self.objects.parameters, &answer, verdict, id);
        Ok(())
    }

    pub unsafe fn add_linear(
        &mut self,
        desc: *const octavo_linear_desc,
        verdict: *mut octavo_verdict,
        id: *mut u32,
    ) -> Done {
        let d: octavo_linear_desc = take(desc);
        let name = owned(d.name);
        if d.flags != 0 {
            let text = format!("\"{name}\": expected flags 0, found {}", d.flags);
            return Err(Error::invalid(text));
        }
        let weight = self.objects.parameters.get(d.weight as usize);
        let weight = weight.filter(|weight| weight.is_linear_weight()).ok_or_else(|| {
            Error::invalid(format!(
                "\"{name}\": expected the id of a parameter added as LINEAR_WEIGHT, found {}",
                d.weight
            ))
        })?;
        let linear = Linear {
            id: self.objects.linears.len() as u32,
            name,
            weight: d.weight,
            places: Vec::new(),
            plan: None,
        };
        let answer = if d.option_count == 0 {
            self.backend.add_linear(&linear, weight)
        } else {
            let text = "this backend has no options for single linears";
            Verdict::decline(OCTAVO_REASON_OPTION, text)
        };
        keep(linear, &mut self.objects.linears, &answer, verdict, id);
        Ok(())
    }

    /// Plans are made before anything is emitted, so that a failure leaves no trace.
    pub unsafe fn seal(&mut self, sink: *const octavo_slot_sink) -> Done {
        let mut sealed = Sealed::new(&self.rules, &self.objects);
        for id in self.objects.sealed_linears..sealed.objects.sealed_linears {
            let linear = &sealed.objects.linears[id];
            let weight = linear.weight as usize;
            let plan = self.plan(linear, &sealed.objects.parameters[weight])?;
            sealed.objects.parameters[weight].workspace = plan.weight_workspace;
            sealed.objects.linears[id].plan = Some(plan);
        }
        sealed.emit(&take(sink))?;
        self.objects = sealed.objects;
        Ok(())
    }
}

/// # Safety
/// The last two are the host's.
unsafe fn keep<T>(
    object: T,
    objects: &mut Vec<T>,
    answer: &Verdict,
    verdict: *mut octavo_verdict,
    id: *mut u32,
) {
    if answer.decision != OCTAVO_DECLINE {
        id.write(objects.len() as u32);
        objects.push(object);
    }
    answer.give(OCTAVO_LEVEL_LAYER, verdict);
}
