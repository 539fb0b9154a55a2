//! A backend that goes wrong in the verb that its option `at` names, in the way that `how` names.
use octavo_sys::sys::*;
use octavo_sys::*;

octavo_sys::options! {
    pub struct Options {
        /// the verb that goes wrong
        at: String = "nowhere",
        /// what it does
        how: String = "panics" => &["panics", "fails", "grows", "shrinks", "declines", "succeeds_with_an_error"],
        /// the bytes that pieces of the workspace grow by for each 256 rows
        growth: i64 = 0 => 0..=8200,
        /// a number
        margin: i64 = 3 => 0..=8,
        /// a number with a fraction
        decay: f64 = 0.5 => 0.0..=1.0,
        /// yes or no
        cache: bool = true,
    }
}

pub struct Wrong {
    options: Options,
    flag: FloatSlot,
    weight: MatrixSlot,
}

fn go_wrong(options: &Options, verb: &str) -> Done {
    if options.at != verb {
        return Ok(());
    }
    match options.how.as_str() {
        "panics" => panic!("{verb} has no idea"),
        "fails" => Err(Error::new(OCTAVO_NO_RESOURCE, "expected a resource, found none")),
        "succeeds_with_an_error" => Err(Error::new(OCTAVO_OK, "expected a failure")),
        _ => Ok(()),
    }
}

impl Backend for Wrong {
    type Options = Options;

    fn check(_: &Device, options: &Options, verdicts: &mut Verdicts) {
        go_wrong(options, "check_session").unwrap();
        verdicts.accept("fine");
    }
    fn open(slots: &mut Slots, options: Options) -> Result<Self, Error> {
        go_wrong(&options, "open_session")?;
        let weight = slots.native_weight(&[OCTAVO_VERB_FORWARD]);
        Ok(Wrong { options, flag: slots.nonfinite(), weight })
    }
    fn add_parameter(&self, _: &Parameter) -> Verdict {
        go_wrong(&self.options, "add_parameter").unwrap();
        Verdict::accept()
    }
    fn declines(&self) -> u32 {
        if self.options.how == "declines" {
            OCTAVO_LINEAR_DECLINES_F32
        } else {
            0
        }
    }
    fn linear_forward<'c>(&self, p: &mut Pass<'c>, c: &ForwardCall<'c>) -> Done {
        if self.options.growth > 0 {
            let bytes = self.options.growth * ((c.y.rows() + 255) / 256);
            for piece in [bytes, 3 * bytes, 100] {
                p.matrix(1, piece, OCTAVO_U8)?;
            }
        }
        if p.is_measuring() {
            go_wrong(&self.options, "seal")?;
        } else {
            go_wrong(&self.options, "linear_forward")?;
            match self.options.how.as_str() {
                "grows" => p.floats(1_000).map(drop)?,
                "shrinks" => p.floats(-1).map(drop)?,
                _ => (),
            }
        }
        p.add(c.at(self.weight), c.y, false)
    }
    fn linear_backward<'c>(&self, p: &mut Pass<'c>, c: &BackwardCall<'c>) -> Done {
        p.clear(c.at(self.flag))?;
        match c.dx {
            Some(dx) => p.add(c.x()?, dx, false),
            None => Ok(()),
        }
    }
    fn end_step<'c>(&self, _: &mut Pass<'c>, _: &StepCall<'c>) -> Done {
        go_wrong(&self.options, "end_step")
    }
}

octavo_sys::plugin!(Wrong, "wrong", "1.2.3");
