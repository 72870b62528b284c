use proptest::prelude::*;

use super::{Error, TEXT_LEN_MAX, parse, print, same, wire};
use crate::amount::Amount;

const MAX: i64 = i64::MAX;

/// Resource, text, units.
const READ: &[(&str, &str, i64)] = &[
    ("cpu", "0", 0),
    ("cpu", "1", 1000),
    ("cpu", "2", 2000),
    ("cpu", "100m", 100),
    ("cpu", "1500m", 1500),
    ("cpu", "0.1", 100),
    ("cpu", "0.5", 500),
    ("cpu", "1.5", 1500),
    ("cpu", ".5", 500),
    ("cpu", "5.", 5000),
    ("cpu", "+3", 3000),
    ("cpu", "0.0001", 1),
    ("cpu", "1u", 1),
    ("cpu", "1n", 1),
    ("cpu", "999u", 1),
    ("cpu", "1000u", 1),
    ("cpu", "1001u", 2),
    ("cpu", "1000000n", 1),
    ("cpu", "1000001n", 2),
    ("cpu", "1k", 1_000_000),
    ("cpu", "2M", 2_000_000_000),
    ("cpu", "1Ki", 1_024_000),
    ("cpu", "1e3", 1_000_000),
    ("cpu", "1E3", 1_000_000),
    ("cpu", "1e-3", 1),
    ("cpu", "1e-4", 1),
    ("cpu", "12e+1", 120_000),
    ("cpu", "-1", -1000),
    ("cpu", "-0.0001", -1),
    ("cpu", "1E", MAX),
    ("cpu", "9223372036854775807", MAX),
    ("cpu", "9223372036854775807m", MAX),
    ("cpu", "9223372036854775806m", MAX - 1),
    ("memory", "0", 0),
    ("memory", "-0", 0),
    ("memory", "0.0", 0),
    ("memory", "1", 1),
    ("memory", "128974848", 128_974_848),
    ("memory", "129e6", 129_000_000),
    ("memory", "129M", 129_000_000),
    ("memory", "128974848000m", 128_974_848),
    ("memory", "123Mi", 128_974_848),
    ("memory", "1Ki", 1024),
    ("memory", "1Mi", 1 << 20),
    ("memory", "1Gi", 1 << 30),
    ("memory", "1Ti", 1 << 40),
    ("memory", "1Pi", 1 << 50),
    ("memory", "1Ei", 1 << 60),
    ("memory", "7Ei", 7 << 60),
    ("memory", "8Ei", MAX),
    ("memory", "0.5Ki", 512),
    ("memory", "1.5Gi", 1_610_612_736),
    ("memory", "0.1Ki", 103),
    ("memory", "0.001Ki", 2),
    ("memory", "1k", 1000),
    ("memory", "1K1", -2),
    ("memory", "1G", 1_000_000_000),
    ("memory", "1T", 1_000_000_000_000),
    ("memory", "1P", 1_000_000_000_000_000),
    ("memory", "1E", 1_000_000_000_000_000_000),
    ("memory", "9E", 9_000_000_000_000_000_000),
    ("memory", "10E", MAX),
    ("memory", "1m", 1),
    ("memory", "1001m", 2),
    ("memory", "1000m", 1),
    ("memory", "0.3", 1),
    ("memory", "1.00000000000000000000000000000000000000000001", 2),
    ("memory", "1.00000000000000000000000000000000000000000000", 1),
    (
        "memory",
        "00000000000000000000000000000000000000000000000000012",
        12,
    ),
    ("memory", "9223372036854775806", MAX - 1),
    ("memory", "9223372036854775807", MAX),
    ("memory", "9223372036854775808", MAX),
    ("memory", "99999999999999999999999999999999999999", MAX),
    ("memory", "9223372036854775805.1", MAX - 1),
    ("memory", "9223372036854775807.1", MAX),
    ("memory", "-9223372036854775808", i64::MIN),
    ("memory", "-9223372036854775809", i64::MIN),
    ("memory", "-8Ei", i64::MIN),
    ("memory", "-9Ei", i64::MIN),
    ("memory", "1e400000", MAX),
    ("memory", "1e2147483647", MAX),
    ("memory", "1e-2147483648", 1),
    ("memory", "0e2147483647", 0),
    ("memory", "-1e-9", -1),
    ("memory", "-1e99", i64::MIN),
    ("memory", "1e0", 1),
    ("memory", "1e00", 1),
    ("memory", "1e18", 1_000_000_000_000_000_000),
    ("memory", "1e19", MAX),
    ("memory", "123456789.123456789e9", 123_456_789_123_456_789),
    ("ephemeral-storage", "10Gi", 10_737_418_240),
    ("hugepages-2Mi", "4Mi", 4_194_304),
    ("nvidia.com/gpu", "8", 8),
    ("nvidia.com/gpu", "8000m", 8),
    ("nvidia.com/gpu", "1k", 1000),
    ("nvidia.com/gpu", "0.5", 1),
    ("pods", "110", 110),
    ("example.com/credits", "2.50", 3),
    ("example.com/credits", "2500000u", 3),
    ("example.com/credits", "2000000u", 2),
    ("example.com/credits", "007", 7),
];

/// Spec: api API-16.
#[test]
fn quantities_are_read_exactly_and_rounded_up() {
    for (resource, text, units) in READ {
        if *units == -2 {
            assert!(parse(resource, text).is_err(), "{text}");
            continue;
        }
        assert_eq!(
            parse(resource, text),
            Ok(Amount::new(*units)),
            "{resource} {text}"
        );
    }
}

/// Spec: api API-16.
#[test]
fn what_is_no_quantity_is_an_error_that_says_why() {
    assert_eq!(parse("cpu", ""), Err(Error::Empty));
    assert_eq!(parse("cpu", &"9".repeat(TEXT_LEN_MAX + 1)), Err(Error::TooLong));
    for text in [
        ".", "-", "+", "m", "Ki", "one", " 1", "e3", "--1", "+-1", ".m", "\u{661}",
    ] {
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
        ("memory", i64::MIN, "-8Ei"),
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
}
