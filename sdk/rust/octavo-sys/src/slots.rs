//! Slots stated once, when a session opens, and the handles by which verbs find them.
use crate::calls::{Addresses, At};
use crate::device::Device;
use crate::operands::{Codes, Directions, Floats, Tensor};
use crate::sys::*;

/// A weight or another tensor of the model.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub id: u32,
    pub name: String,
    /// N
    pub rows: i64,
    /// K
    pub cols: i64,
    pub dtype: u32,
    pub gradient_dtype: u32,
    pub flags: u32,
    pub(crate) places: Vec<Place>,
    pub(crate) workspace: u64,
}

impl Parameter {
    pub fn is_linear_weight(&self) -> bool {
        self.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT != 0
    }
    pub fn is_frozen(&self) -> bool {
        self.flags & OCTAVO_PARAMETER_FROZEN != 0
    }
}

/// A use of a weight: y = x w^T + bias.
#[derive(Clone, Debug)]
pub struct Linear {
    pub id: u32,
    pub name: String,
    /// The parameter's id.
    pub weight: u32,
    pub(crate) places: Vec<Place>,
    pub(crate) plan: Option<octavo_linear_plan>,
}

/// Where the slot of a rule is in one object's list, and what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub position: u32,
    pub slot: u32,
    pub dtype: u32,
    pub rows: i64,
    pub cols: i64,
}
pub(crate) const NOWHERE: Place =
    Place { position: OCTAVO_NONE, slot: OCTAVO_NONE, dtype: 0, rows: 0, cols: 0 };

/// Whose slot it is: one for the session, or one for each parameter or linear.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Session,
    Parameter,
    LinearWeight,
    Linear,
}

/// Rows and columns for a parameter, or for the weight of a linear.
pub type Shape = Box<dyn Fn(&Parameter) -> (i64, i64) + Send + Sync>;

/// One statement. In which lists the slot is follows from the verbs that use it.
pub struct SlotRule {
    pub owner: Owner,
    pub name: String,
    /// OCTAVO_ROLE_...
    pub role: u32,
    /// None: the parameter's own.
    pub dtype: Option<u32>,
    /// OCTAVO_SLOT_...
    pub flags: u32,
    /// OCTAVO_COMBINE_...
    pub combine: u32,
    /// OCTAVO_SHARD_...
    pub shard: u32,
    /// The handle of its scale_inv, one for the tensor.
    pub scale_inv: Option<MatrixSlot>,
    pub initial: f64,
    /// A session's slot is 1 by 1.
    pub shape: Shape,
    pub(crate) access: [u8; OCTAVO_VERB_LIMIT as usize],
}

impl SlotRule {
    pub fn new(owner: Owner, name: impl Into<String>, role: u32) -> Self {
        SlotRule {
            owner,
            name: name.into(),
            role,
            dtype: Some(OCTAVO_F32),
            flags: 0,
            combine: OCTAVO_COMBINE_NONE,
            shard: OCTAVO_SHARD_REPLICATED,
            scale_inv: None,
            initial: 0.0,
            shape: Box::new(|_| (1, 1)),
            access: [0; OCTAVO_VERB_LIMIT as usize],
        }
    }
    fn set(mut self, verbs: &[u32], access: u32) -> Self {
        for verb in verbs {
            self.access[*verb as usize] = access as u8;
        }
        self
    }
    /// Verbs are OCTAVO_VERB_...
    pub fn read(self, verbs: &[u32]) -> Self {
        self.set(verbs, OCTAVO_ACCESS_READ)
    }
    pub fn write(self, verbs: &[u32]) -> Self {
        self.set(verbs, OCTAVO_ACCESS_WRITE)
    }
    pub fn update(self, verbs: &[u32]) -> Self {
        self.set(verbs, OCTAVO_ACCESS_UPDATE)
    }
    /// Ranks are combined in the same way, by OCTAVO_COMBINE_..., and end_step clears it.
    pub fn accumulate(mut self, verb: u32, how: u32) -> Self {
        self.flags |= OCTAVO_SLOT_REDUCE;
        self.combine = how;
        self.set(&[verb], OCTAVO_ACCESS_ACCUMULATE).write(&[OCTAVO_VERB_END_STEP])
    }
    pub(crate) fn uses(&self, verbs: &[u32]) -> bool {
        verbs.iter().any(|verb| self.access[*verb as usize] != 0)
    }
}

/// A tensor of its own.
#[derive(Clone, Copy, Debug)]
pub struct MatrixSlot(pub(crate) usize);
/// Float32 values.
#[derive(Clone, Copy, Debug)]
pub struct FloatSlot(pub(crate) usize);
/// Codes in one or both directions, and their scale_inv.
#[derive(Clone, Copy, Debug)]
pub struct CodesSlot {
    rows: Option<MatrixSlot>,
    columns: Option<MatrixSlot>,
    scale_inv: FloatSlot,
}

impl<'c> At<'c> for MatrixSlot {
    type Found = Tensor<'c>;
    fn at(self, addresses: &Addresses<'c>) -> Tensor<'c> {
        addresses.tensor(self.0)
    }
}
impl<'c> At<'c> for FloatSlot {
    type Found = Floats<'c>;
    fn at(self, addresses: &Addresses<'c>) -> Floats<'c> {
        Floats::new(addresses.tensor(self.0))
    }
}
impl<'c> At<'c> for CodesSlot {
    type Found = Codes<'c>;
    fn at(self, addresses: &Addresses<'c>) -> Codes<'c> {
        Codes::new(
            self.rows.map(|slot| slot.at(addresses)),
            self.columns.map(|slot| slot.at(addresses)),
            self.scale_inv.at(addresses),
        )
    }
}

/// The statements of a session.
pub struct Slots<'a> {
    pub(crate) rules: Vec<SlotRule>,
    device: &'a Device,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(device: &'a Device) -> Self {
        Slots { rules: Vec::new(), device }
    }
    pub fn device(&self) -> &Device {
        self.device
    }
    /// Anything that a slot can be.
    pub fn matrix(&mut self, rule: SlotRule) -> MatrixSlot {
        self.rules.push(rule);
        MatrixSlot(self.rules.len() - 1)
    }
    /// The same for float32.
    pub fn floats(&mut self, rule: SlotRule) -> FloatSlot {
        FloatSlot(self.matrix(SlotRule { dtype: Some(OCTAVO_F32), ..rule }).0)
    }
    /// The host's own weight, read in place by these verbs.
    pub fn native_weight(&mut self, read_by: &[u32]) -> MatrixSlot {
        self.matrix(SlotRule {
            dtype: None,
            flags: OCTAVO_SLOT_NATIVE,
            shape: Box::new(|p| (p.rows, p.cols)),
            ..SlotRule::new(Owner::Parameter, "weight", OCTAVO_ROLE_WEIGHT).read(read_by)
        })
    }
    /// The flag that a cast met an Inf or NaN, which a saturating cast would hide. Every cast of a
    /// plain matrix in quantize_weight, linear_forward and linear_backward sets it by itself.
    pub fn nonfinite(&mut self) -> FloatSlot {
        let rule = SlotRule::new(Owner::Session, "nonfinite", OCTAVO_ROLE_NONFINITE)
            .accumulate(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_COMBINE_MAX)
            .accumulate(OCTAVO_VERB_FORWARD, OCTAVO_COMBINE_MAX)
            .accumulate(OCTAVO_VERB_BACKWARD, OCTAVO_COMBINE_MAX);
        self.floats(rule.read(&[OCTAVO_VERB_OPTIMIZER_STEP]))
    }
    /// Codes of linear weights, written by quantize_weight: [N, K] for forward, [K, N] for
    /// backward, with one scale_inv for both.
    pub fn weight_codes(&mut self, name: &str, dtype: u32, directions: Directions) -> CodesSlot {
        let alignment = self.device.alignment();
        let padded = move |p: &Parameter| {
            let up = |n| crate::device::round_up(n, alignment);
            (up(p.rows), up(p.cols))
        };
        let rule = |suffix: &str, role, readers: &[u32]| {
            SlotRule::new(Owner::LinearWeight, format!("{name}{suffix}"), role)
                .write(&[OCTAVO_VERB_QUANTIZE_WEIGHT])
                .read(readers)
        };
        let mut readers = Vec::new();
        if directions.has_rows() {
            readers.push(OCTAVO_VERB_FORWARD);
        }
        if directions.has_columns() {
            readers.push(OCTAVO_VERB_BACKWARD);
        }
        let scale_inv = self.floats(rule("/scale_inv", OCTAVO_ROLE_SCALE_INV, &readers));
        let mut codes = |suffix, verb, shape: Shape| {
            self.matrix(SlotRule {
                dtype: Some(dtype),
                scale_inv: Some(MatrixSlot(scale_inv.0)),
                shape,
                ..rule(suffix, OCTAVO_ROLE_WEIGHT_CACHE, &[verb])
            })
        };
        CodesSlot {
            scale_inv,
            rows: directions.has_rows().then(|| codes("", OCTAVO_VERB_FORWARD, Box::new(padded))),
            columns: directions.has_columns().then(|| {
                let turned = move |p: &Parameter| (padded(p).1, padded(p).0);
                codes("_t", OCTAVO_VERB_BACKWARD, Box::new(turned))
            }),
        }
    }
}
