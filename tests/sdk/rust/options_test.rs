//! Options as list_options emits them and as a session reads them.
use std::os::raw::c_void;

use octavo_sys::growable::fresh;
use octavo_sys::sys::*;
use octavo_sys::Options as _;

use crate::host::{said, str_of, text, Fixture};
use crate::wrong::Options;

unsafe extern "C" fn option(ctx: *mut c_void, o: *const octavo_option) -> u32 {
    let o = &*o;
    let choices: Vec<String> =
        (0..o.choice_count as usize).map(|i| text(*o.choices.add(i))).collect();
    let value = |v: octavo_value| match v.type_ {
        0 => "none".to_owned(),
        OCTAVO_VALUE_TEXT => text(v.text),
        OCTAVO_VALUE_REAL => format!("{}", v.real),
        OCTAVO_VALUE_BOOL => (v.integer == 1).to_string(),
        _ => v.integer.to_string(),
    };
    (*ctx.cast::<Vec<String>>()).push(format!(
        "{}: {} {} {}..{} {}",
        text(o.name),
        text(o.help),
        value(o.initial),
        value(o.low),
        value(o.high),
        choices.join("|")
    ));
    OCTAVO_OK
}

#[test]
fn each_option_is_listed_with_its_default_its_help_and_its_bounds() {
    let f = Fixture::new("nowhere", "panics");
    let mut listed: Vec<String> = Vec::new();
    let mut sink: octavo_option_sink = fresh();
    sink.ctx = (&mut listed as *mut Vec<String>).cast();
    sink.option = Some(option);
    assert_eq!(unsafe { f.backend.list_options.unwrap()(&sink) }, OCTAVO_OK);
    let wanted = [
        "at: the verb that goes wrong nowhere none..none ",
        "how: what it does panics none..none panics|fails|grows|shrinks|declines|succeeds_with_an_error",
        "growth: the bytes that pieces of the workspace grow by for each 256 rows 0 0..8200 ",
        "margin: a number 3 0..8 ",
        "decay: a number with a fraction 0.5 0..1 ",
        "cache: yes or no true none..none ",
    ];
    assert_eq!(listed, wanted);
}

#[test]
fn a_value_is_read_by_its_type() {
    let mut options = Options::default();
    let mut v: octavo_value = unsafe { std::mem::zeroed() };
    (v.type_, v.integer) = (OCTAVO_VALUE_INT, 5);
    options.set("margin", &v).unwrap();
    (v.type_, v.integer) = (OCTAVO_VALUE_BOOL, 0);
    options.set("cache", &v).unwrap();
    (v.type_, v.real) = (OCTAVO_VALUE_REAL, 0.25);
    options.set("decay", &v).unwrap();
    assert_eq!((options.margin, options.cache, options.decay), (5, false, 0.25));
    let error = options.set("margin", &v).unwrap_err();
    assert_eq!(error.status(), OCTAVO_INVALID);
    assert!(error
        .text()
        .starts_with("option \"margin\": expected a value of type 1, found type 2"));
}

#[test]
fn a_name_that_is_not_listed_is_refused() {
    let v: octavo_value = unsafe { std::mem::zeroed() };
    let wanted = "option \"of another backend\": expected one of list_options, found none";
    for set in [Options::default().set("of another backend", &v), ().set("of another backend", &v)]
    {
        let error = set.unwrap_err();
        assert_eq!((error.status(), error.text().starts_with(wanted)), (OCTAVO_INVALID, true));
    }
}

#[test]
fn a_session_with_a_flag_that_is_not_known_does_not_open() {
    let f = Fixture::new("nowhere", "panics");
    let mut d = f.desc();
    d.flags = u64::from(OCTAVO_SESSION_DETERMINISTIC) | 2;
    let mut session = std::ptr::null_mut();
    assert_eq!(unsafe { f.backend.open_session.unwrap()(&d, &mut session) }, OCTAVO_INVALID);
    let wanted = "open_session: expected known flags of the session, at most 1, found 3";
    assert!(session.is_null() && said()[0].1.starts_with(wanted));
}

#[test]
fn a_session_with_a_value_of_another_type_does_not_open() {
    let mut f = Fixture::new("nowhere", "panics");
    let mut v: octavo_value = unsafe { std::mem::zeroed() };
    v.type_ = OCTAVO_VALUE_INT;
    f.options.push(octavo_option_value { name: str_of("decay"), value: v });
    assert_eq!(f.open(), OCTAVO_INVALID);
    assert!(said()[0].1.starts_with("open_session: option \"decay\": expected"));
}
