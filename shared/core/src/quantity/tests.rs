use proptest::prelude::*;

use super::{Error, TEXT_LEN_MAX, canonical, parse, print, same, wire};
use crate::amount::Amount;

const MAX: i64 = i64::MAX;

/// Results of the reference library (`k8s.io/apimachinery` v0.36.3). A line holds: input, resource, amount or `error`, the amount as
/// printed, the input in canonical form.
const CASES: &str = include_str!("cases.txt");
/// A lower bound, so that the table is not shortened by accident.
const CASES_MIN: usize = 400;

/// Spec: api API-16.
#[test]
fn quantities_are_read_and_printed_as_by_the_reference_library() {
    let mut count = 0;
    for line in CASES.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [input, resource, amount, printed, form] = fields.as_slice() else {
            panic!("{line}: not five fields");
        };
        count += 1;
        if *amount == "error" {
            assert!(parse(resource, input).is_err(), "{line}");
            assert!(canonical(input).is_err(), "{line}");
            continue;
        }
        let read = parse(resource, input).unwrap();
        assert_eq!(read.get().to_string(), *amount, "{line}");
        assert_eq!(wire(resource, read), *printed, "{line}");
        assert_eq!(canonical(input).as_deref(), Ok(*form), "{line}");
    }
    assert!(count >= CASES_MIN, "{count}");
}

/// Values that the reference library needs long for, or has no suffix for.
#[test]
fn values_out_of_every_range_saturate_and_are_printed_in_full() {
    for (text, units) in [
        ("1e400000", MAX),
        ("1e2147483647", MAX),
        ("1e-2147483648", 1),
        ("0e2147483647", 0),
        ("-1e99", i64::MIN),
    ] {
        assert_eq!(parse("memory", text), Ok(Amount::new(units)), "{text}");
    }
    assert_eq!(canonical("1e2147483647").as_deref(), Ok("10e2147483646"));
    assert_eq!(canonical("1000E").as_deref(), Ok("1000E"));
    assert_eq!(canonical("1e-2147483648").as_deref(), Ok("1e-9"));
}

/// Spec: api API-16.
#[test]
fn what_is_no_quantity_is_an_error_that_says_why() {
    assert_eq!(parse("cpu", ""), Err(Error::Empty));
    assert_eq!(parse("cpu", &"9".repeat(TEXT_LEN_MAX + 1)), Err(Error::TooLong));
    for text in ["one", " 1", "--1", "+-1", "\u{661}", "K", "e", ".e", ".."] {
        assert_eq!(
            parse("cpu", text),
            Err(Error::NoNumber(text.to_owned())),
            "{text}"
        );
    }
    for text in [
        "1 ",
        "1 Gi",
        "1K",
        "1ki",
        "1mi",
        "1e",
        "1E+",
        "1e1.5",
        "1Kim",
        "1.2.3",
        "1,5",
        "1i",
        "1e99999999999",
        "1_000",
        "0x10",
    ] {
        assert_eq!(
            parse("cpu", text),
            Err(Error::UnknownSuffix(text.to_owned())),
            "{text}"
        );
    }
}

/// Spec: api API-16.
#[test]
fn amounts_are_printed_as_the_api_server_prints_them() {
    let cases: &[(&str, i64, &str)] = &[
        ("cpu", 0, "0"),
        ("cpu", 1, "1m"),
        ("cpu", 100, "100m"),
        ("cpu", 999, "999m"),
        ("cpu", 1000, "1"),
        ("cpu", 1500, "1500m"),
        ("cpu", 64_000, "64"),
        ("cpu", 1_000_000, "1k"),
        ("cpu", 1_500_000, "1500"),
        ("cpu", 2_000_000_000, "2M"),
        ("cpu", -1000, "-1"),
        ("cpu", MAX, "9223372036854775807m"),
        ("memory", 0, "0"),
        ("memory", 1, "1"),
        ("memory", 1000, "1k"),
        ("memory", 1023, "1023"),
        ("memory", 1024, "1Ki"),
        ("memory", 1025, "1025"),
        ("memory", 1000 * 1024, "1000Ki"),
        ("memory", 1_000_000, "1000000"),
        ("memory", 1 << 20, "1Mi"),
        ("memory", 1_610_612_736, "1536Mi"),
        ("memory", 1 << 40, "1Ti"),
        ("memory", 1 << 60, "1Ei"),
        ("memory", -2048, "-2Ki"),
        ("memory", i64::MIN, "-9223372036854775808"),
        ("ephemeral-storage", 10_737_418_240, "10Gi"),
        ("hugepages-1Gi", 2 << 30, "2Gi"),
        ("nvidia.com/gpu", 8, "8"),
        ("nvidia.com/gpu", 1000, "1k"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("nvidia.com/gpu", 2_000_000, "2M"),
        ("pods", 110, "110"),
        ("example.com/x", 1_000_000_000_000_000_000, "1E"),
    ];
    for (resource, units, text) in cases {
        assert_eq!(wire(resource, Amount::new(*units)), *text, "{resource} {units}");
    }
}

#[test]
fn people_read_unlimited_where_there_is_no_bound() {
    assert_eq!(print(&"pods".into(), Amount::UNLIMITED), "unlimited");
    assert_eq!(print(&"cpu".into(), Amount::new(1500)), "1500m");
}

/// Spec: jobs 5.5.
#[test]
fn quantities_are_the_same_when_their_values_are() {
    for (left, right) in [
        ("1000m", "1"),
        ("1Gi", "1024Mi"),
        ("0", "0m"),
        ("-0", "0"),
        ("1e3", "1k"),
        ("0.5", "500m"),
        ("0.1n", "1n"),
        ("m", "0"),
        ("x", "x"),
    ] {
        assert!(same(left, right), "{left} {right}");
    }
    for (left, right) in [
        ("1", "1m"),
        ("1G", "1Gi"),
        ("1", "-1"),
        ("x", "y"),
        ("1", "x"),
        ("1n", "2n"),
        ("1n", "1.1n"),
    ] {
        assert!(!same(left, right), "{left} {right}");
    }
}

proptest! {
    /// Spec: api API-16.
    #[test]
    fn what_is_printed_is_read_back(units in any::<i64>(), resource in prop::sample::select(vec!["cpu", "memory", "example.com/x"])) {
        let text = wire(resource, Amount::new(units));
        prop_assert_eq!(parse(resource, &text), Ok(Amount::new(units)), "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-+]?[0-9.eE+mKkMGi ]{0,40}") {
        let _ = parse("cpu", &text);
        prop_assert!(same(&text, &text));
    }

    /// Spec: api API-16.
    #[test]
    fn the_canonical_form_is_the_same_quantity_and_stays_as_it_is(
        text in "[-+]?[0-9]{1,12}([.][0-9]{0,14})?(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})"
    ) {
        let once = canonical(&text).unwrap();
        prop_assert!(same(&text, &once), "{} {}", text, once);
        prop_assert_eq!(canonical(&once).unwrap(), once);
    }

    /// Spec: api API-16.
    #[test]
    fn amounts_are_rounded_away_from_zero_by_less_than_a_unit(whole in 0_u32.., nanos in 0_u32..1_000_000_000) {
        let text = format!("{whole}.{nanos:09}");
        let up = i64::from(whole) + i64::from(nanos > 0);
        prop_assert_eq!(parse("memory", &text), Ok(Amount::new(up)));
        prop_assert_eq!(parse("memory", &format!("-{text}")), Ok(Amount::new(-up)));
        let milli = i64::from(whole) * 1000 + i64::from(nanos.div_ceil(1_000_000));
        prop_assert_eq!(parse("cpu", &text), Ok(Amount::new(milli)));
    }
}
