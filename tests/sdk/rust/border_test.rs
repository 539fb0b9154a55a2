//! Statuses, diagnostics, and structs of another age.
use std::mem::{size_of, size_of_val};
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use octavo_sys::growable::{fresh, give, take};
use octavo_sys::sys::*;

use crate::host::{cleared, said, str_of, text, Fixture};

/// One diagnostic, with this beginning and, of a panic, the place.
fn expect_said(status: u32, beginning: &str) {
    let all = said();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].0, status, "{all:?}");
    assert!(all[0].1.starts_with(beginning), "expected {beginning:?}, found {all:?}");
    if beginning.contains("panicked") {
        assert!(all[0].1.contains(" at ") && all[0].1.contains("wrong.rs:"), "{all:?}");
    }
}

#[test]
fn a_panic_in_each_verb_is_an_internal_error() {
    let f = Fixture::new("check_session", "panics");
    assert_eq!(f.check(), (OCTAVO_INTERNAL, u32::MAX));
    expect_said(OCTAVO_INTERNAL, "check_session: panicked: check_session has no idea");
    let mut f = Fixture::new("open_session", "panics");
    assert_eq!((f.open(), f.session), (OCTAVO_INTERNAL, null_mut()));
    expect_said(OCTAVO_INTERNAL, "open_session: panicked: open_session has no idea");
    let mut f = Fixture::new("add_parameter", "panics");
    assert_eq!((f.open(), f.add()), (OCTAVO_OK, OCTAVO_INTERNAL));
    expect_said(OCTAVO_INTERNAL, "add_parameter: panicked: ");
    let mut f = Fixture::new("seal", "panics");
    assert_eq!((f.open(), f.add(), f.seal()), (OCTAVO_OK, OCTAVO_OK, (OCTAVO_INTERNAL, 0)));
    expect_said(OCTAVO_INTERNAL, "seal: panicked: ");
    let f = Fixture::ready("linear_forward", "panics");
    assert_eq!(f.forward(4), OCTAVO_INTERNAL);
    expect_said(OCTAVO_INTERNAL, "linear_forward: panicked: ");
    let f = Fixture::ready("end_step", "panics");
    assert_eq!(f.end_step(&[null_mut()]), OCTAVO_INTERNAL);
    expect_said(OCTAVO_INTERNAL, "end_step: panicked: ");
}

#[test]
fn an_error_has_its_status_and_the_verbs_name() {
    let f = Fixture::ready("linear_forward", "fails");
    assert_eq!(f.forward(4), OCTAVO_NO_RESOURCE);
    expect_said(OCTAVO_NO_RESOURCE, "linear_forward: expected a resource, found none");
    let f = Fixture::ready("linear_forward", "succeeds_with_an_error");
    assert_eq!(f.forward(4), OCTAVO_INTERNAL);
    expect_said(OCTAVO_INTERNAL, "linear_forward: expected a failure");
}

#[test]
fn a_verb_that_takes_more_than_its_plan_states_fails_before_a_kernel_runs() {
    let f = Fixture::ready("nowhere", "grows");
    assert_eq!(f.forward(4), OCTAVO_INTERNAL);
    expect_said(OCTAVO_INTERNAL, "linear_forward: takes 4000 bytes where its plan states 0");
    let f = Fixture::ready("nowhere", "shrinks");
    assert_eq!(f.forward(4), OCTAVO_INTERNAL);
    expect_said(
        OCTAVO_INTERNAL,
        "linear_forward: expected sizes of a matrix in memory, found [1, -1]",
    );
}

fn up(value: u64, multiple: u64) -> u64 {
    (value + multiple - 1) / multiple * multiple
}

/// Pieces of 256 rows at multiples of 256 bytes. The verb itself compares what it takes with its plan.
#[test]
fn a_plan_covers_pieces_that_grow_slowly_and_is_exact_for_others() {
    for growth in [1, 8, 100, 255, 256, 257, 511, 512, 8192, 8200] {
        let f = Fixture::growing(growth as i64);
        let e = f.plan().forward_workspace;
        for rows in (0..300_000_u64).step_by(37) {
            let bytes = growth * (up(rows, 256) / 256);
            let used = up(up(bytes, 256) + 3 * bytes, 256) + 100;
            let stated = up(rows, e.row_multiple) * e.bytes_per_row + e.fixed_bytes;
            assert!(stated >= used, "{growth} bytes, {rows} rows: {stated} for {used}");
            assert!(growth % 256 != 0 || stated == used, "{growth}, {rows}: {stated} for {used}");
            assert_eq!(f.forward(rows as i64), OCTAVO_OK, "{:?}", said());
        }
    }
}

#[test]
fn a_declined_dtype_is_answered_before_the_verb() {
    let f = Fixture::ready("linear_forward", "declines");
    assert_eq!(f.forward(4), OCTAVO_UNSUPPORTED);
    expect_said(
        OCTAVO_UNSUPPORTED,
        "linear_forward: l: expected x in f32, bf16 or f16, but no dtype that the plan declines",
    );
    let f = Fixture::ready("nowhere", "panics");
    assert_eq!(f.forward(4), OCTAVO_OK);
}

#[test]
fn a_session_goes_on_after_a_failure() {
    let mut f = Fixture::ready("nowhere", "panics");
    assert_eq!(f.forward(-1), OCTAVO_INVALID);
    expect_said(OCTAVO_INVALID, "linear_forward: expected x [M, K] and y [M, N]");
    assert_eq!((f.forward(4), f.seal()), (OCTAVO_OK, (OCTAVO_OK, 0)));
}

#[test]
fn end_step_clears_what_was_accumulated() {
    let f = Fixture::ready("nowhere", "panics");
    let mut flag = 1_f32;
    let at: *mut c_void = (&mut flag as *mut f32).cast();
    cleared();
    assert_eq!(f.end_step(&[at]), OCTAVO_OK);
    assert_eq!(cleared(), [(at as usize, 4)]);
    assert_eq!(f.end_step(&[null_mut()]), OCTAVO_OK);
    assert!(cleared().is_empty());
}

#[test]
fn a_kernel_that_an_older_table_lacks_is_unsupported() {
    let mut f = Fixture::new("nowhere", "panics");
    let through = &f.kernels.dequantize as *const _ as usize - &f.kernels as *const _ as usize;
    f.kernels.size = through as u32;
    assert_eq!((f.open(), f.add(), f.seal().0), (OCTAVO_OK, OCTAVO_OK, OCTAVO_OK));
    assert_eq!(f.forward(4), OCTAVO_UNSUPPORTED);
    expect_said(OCTAVO_UNSUPPORTED, "linear_forward: the kernels lack a function");
}

#[test]
fn structs_are_read_and_written_as_far_as_both_reach() {
    let mut given: octavo_step_call = fresh();
    assert_eq!((given.size as usize, given.kind), (size_of_val(&given), OCTAVO_KIND_STEP_CALL));
    given.stream = 8 as *mut c_void;
    given.slots = 16 as *const *mut c_void;
    given.size = 16;
    let older = unsafe { take(&given) };
    assert_eq!((older.size, older.stream as usize, older.slots), (16, 8, null()));
    given.size = 4096;
    let newer = unsafe { take(&given) };
    assert_eq!((newer.size as usize, newer.slots as usize), (size_of_val(&given), 16));

    let mut plan: octavo_linear_plan = fresh();
    plan.gradient = 1;
    plan.weight_workspace = 7;
    let mut out: octavo_linear_plan = fresh();
    out.size -= size_of::<u64>() as u32;
    unsafe { give(plan, &mut out) };
    assert_eq!((out.gradient, out.weight_workspace), (1, 0));
    assert_eq!(out.size as usize, size_of::<octavo_linear_plan>() - size_of::<u64>());
}

#[test]
fn the_table_has_the_plugins_names() {
    let mut f = Fixture::new("nowhere", "panics");
    let mut out = null();
    assert_eq!(unsafe { crate::wrong::octavo_plugin_query_1(&f.host, &mut out) }, OCTAVO_OK);
    let p = unsafe { *out };
    assert_eq!((p.size as usize, p.kind), (size_of::<octavo_plugin>(), OCTAVO_KIND_PLUGIN));
    assert_eq!((text(p.id), text(p.version)), ("wrong".to_owned(), "1.2.3".to_owned()));
    for id in ["octavo.backend/2", "octavo.optimizer/2", ""] {
        assert!(unsafe { p.get_interface.unwrap()(str_of(id)) }.is_null());
    }
    f.host.abi_major += 1;
    let mut out = null();
    assert_eq!(
        unsafe { crate::wrong::octavo_plugin_query_1(&f.host, &mut out) },
        OCTAVO_INCOMPATIBLE
    );
    assert!(out.is_null());
}

#[test]
fn an_option_of_a_single_linear_is_declined() {
    let mut f = Fixture::new("nowhere", "works");
    assert_eq!((f.open(), f.add()), (OCTAVO_OK, OCTAVO_OK));
    assert_eq!(f.reason_against_an_option(), OCTAVO_REASON_OPTION);
}

#[test]
fn what_check_session_declines_does_not_open() {
    let mut f = Fixture::new("nowhere", "panics");
    assert_eq!(f.check(), (OCTAVO_OK, OCTAVO_ACCEPT));
    f.caps.alignment = 384;
    assert_eq!(f.check(), (OCTAVO_OK, OCTAVO_DECLINE));
    assert_eq!(f.open(), OCTAVO_UNSUPPORTED);
    expect_said(OCTAVO_UNSUPPORTED, "open_session: the kernels want sizes of a multiple");
}
