//! Durations as Go writes them: `5m0s`, `168h0m0s`.

use jiff::SignedDuration;

/// Writes a duration as Go does: `5m0s`, `168h0m0s`, `1.5s`, `0s`.
pub fn print(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let small = |scale: u128, unit: &str| {
        let text = fraction(nanos, scale);
        format!("{sign}{text}{unit}")
    };
    if nanos < 1_000 {
        return small(1, "ns");
    }
    if nanos < 1_000_000 {
        return small(1_000, "\u{b5}s");
    }
    if nanos < 1_000_000_000 {
        return small(1_000_000, "ms");
    }
    let minute = 60_000_000_000;
    let seconds = fraction(nanos % minute, 1_000_000_000);
    let minutes = nanos / minute;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// `value / scale` as a decimal number without trailing zeros.
fn fraction(value: u128, scale: u128) -> String {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let width = usize::try_from(scale.ilog10()).unwrap_or(0);
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (millis, text) in [
            (0, "0s"),
            (10, "10ms"),
            (1_500, "1.5s"),
            (300_000, "5m0s"),
            (604_800_000, "168h0m0s"),
            (-61_000, "-1m1s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(print(SignedDuration::from_millis(millis)), text);
        }
    }
}
