//! The canonical form of Kubernetes quantities.

/// Suffixes with their power of ten.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// Suffixes with their power of two.
const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

/// Rewrites a quantity as Kubernetes does; nothing if it is none. *Limits*: beyond 10^38 nano it is none.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (nano, binary) = parse(text)?;
    let whole = nano / NANO;
    if binary && nano % NANO == 0 {
        let mut suffix = "";
        let mut number = whole;
        for (name, bits) in BINARY {
            let unit = 1_i128 << bits;
            if whole != 0 && whole % unit == 0 {
                (suffix, number) = (name, whole / unit);
            }
        }
        return Some(format!("{number}{suffix}"));
    }
    let mut result = (nano, -9);
    for (_, power) in DECIMAL {
        let unit = 10_i128.checked_pow(u32::try_from(power + 9).ok()?)?;
        if nano % unit == 0 && nano != 0 {
            result = (nano / unit, power);
        }
    }
    if nano == 0 {
        return Some("0".to_owned());
    }
    let suffix = DECIMAL.iter().find(|(_, power)| *power == result.1)?.0;
    Some(format!("{}{suffix}", result.0))
}

const NANO: i128 = 1_000_000_000;

/// In billionths, and whether it was written with a binary suffix.
pub(crate) fn parse(text: &str) -> Option<(i128, bool)> {
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && (*c == '-' || *c == '+'))))
        .map_or(text.len(), |(at, _)| at);
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if integer.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("{integer}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let scaled = |power: i32| -> Option<i128> {
        let power = power + 9 - places;
        let unit = 10_i128.checked_pow(power.unsigned_abs())?;
        if power >= 0 {
            mantissa.checked_mul(unit)
        } else {
            // Wire: Kubernetes rounds quantities up.
            Some((mantissa + unit - 1) / unit)
        }
    };
    let (nano, binary) = if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        (scaled(*power)?, false)
    } else if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        let unit = 10_i128.checked_pow(places.unsigned_abs())?;
        (
            mantissa.checked_mul(NANO)?.checked_mul(1_i128 << bits)? / unit,
            true,
        )
    } else {
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        (scaled(exponent.parse().ok()?)?, false)
    };
    Some((if negative { -nano } else { nano }, binary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        for (given, canonical_form) in [
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1500Mi", "1500Mi"),
            ("1e3", "1k"),
            ("0", "0"),
            ("1000", "1k"),
            ("0.1Gi", "107374182400m"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(canonical_form), "{given}");
        }
        assert_eq!(canonical("1 Gi"), None);
        assert_eq!(canonical(""), None);
    }
}
