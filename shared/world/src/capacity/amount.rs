//! Kubernetes quantities as numbers: thousandths of the base unit, rounded up.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts by resource name, in thousandths (of a core, a byte, a device).
pub(super) type Amounts = BTreeMap<String, i64>;

/// Thousandths in one.
pub(super) const ONE: i64 = 1000;

/// Largest exponent of ten that a quantity may have, either way.
const EXPONENT_MAX: u32 = 18;

/// All amounts of a resource list, or the name of one that cannot be read.
pub(super) fn parse_all(list: &BTreeMap<String, Quantity>) -> Result<Amounts, String> {
    list.iter()
        .map(|(name, quantity)| {
            let amount = parse(&quantity.0).ok_or_else(|| format!("{name}: {}", quantity.0))?;
            Ok((name.clone(), amount))
        })
        .collect()
}

/// Thousandths of one quantity; `None` if it is none or beyond 64 bits.
pub(super) fn parse(text: &str) -> Option<i64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (times, over) = scale(suffix)?;
    let over = over.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let thousandths = digits.checked_mul(times)?;
    // Why rounded up: a small request must never count as zero.
    let rest = i128::from(thousandths % over > 0);
    i64::try_from(thousandths / over + rest).ok()
}

/// What a suffix multiplies thousandths by, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let decimal = |power: u32| Some((1000 * 10_i128.pow(power), 1));
    let binary = |power: u32| Some((1000 << (10 * power), 1));
    match suffix {
        "n" => Some((1, 1_000_000)),
        "u" => Some((1, 1000)),
        "m" => Some((1, 1)),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = exponent.unsigned_abs();
            if power > EXPONENT_MAX {
                None
            } else if exponent < 0 {
                Some((1000, 10_i128.pow(power)))
            } else {
                decimal(power)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_form_of_a_quantity_is_read() {
        for (text, thousandths) in [
            ("0", Some(0)),
            ("2", Some(2000)),
            ("1.5", Some(1500)),
            (".5", Some(500)),
            ("5.", Some(5000)),
            ("250m", Some(250)),
            ("100u", Some(1)),
            ("1n", Some(1)),
            ("0.0001", Some(1)),
            ("-1", Some(-1000)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("2k", Some(2_000_000)),
            ("12e3", Some(12_000_000)),
            ("12E-3", Some(12)),
            ("1E", None),
            ("7Pi", Some(7 * (1 << 50) * 1000)),
            ("", None),
            ("1X", None),
            ("1e99", None),
            ("1 Gi", None),
        ] {
            assert_eq!(parse(text), thousandths, "{text:?}");
        }
    }
}
