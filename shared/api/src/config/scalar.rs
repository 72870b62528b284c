//! Text forms of single values: durations, listen addresses, quantities, kind names.
//!
//! Each is checked while it is read, so that the error carries the key's path.

use std::fmt;

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

const NANOS_PER_MICRO: i128 = 1_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Limit: fraction digits that are read; Go keeps nanoseconds, the rest cannot change the value.
const FRACTION_DIGITS_MAX: usize = 18;

/// Parses the duration text of Kubernetes files, for example `1h30m`, `300ms`, `0`, `-1.5s`.
///
/// # Errors
/// A sentence about the form of a duration; also when the value exceeds 292 years, Go's limit.
pub fn parse_go_duration(text: &str) -> Result<SignedDuration, String> {
    let refuse =
        || format!("`{text}` is not a duration; write a number and a unit such as `30s`, `15m` or `1h30m`");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(refuse());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_len = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refuse)?;
        let (number, after) = rest.split_at(number_len);
        let unit_len = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let nanos = unit_nanos(unit).ok_or_else(refuse)?;
        total = scaled(number, nanos)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(refuse)?;
        rest = after;
    }
    let signed = if negative { total.saturating_neg() } else { total };
    i64::try_from(signed)
        .map(SignedDuration::from_nanos)
        .map_err(|_too_long| refuse())
}

fn unit_nanos(unit: &str) -> Option<i128> {
    match unit {
        "ns" => Some(1),
        "us" | "µs" | "μs" => Some(NANOS_PER_MICRO),
        "ms" => Some(NANOS_PER_MILLI),
        "s" => Some(NANOS_PER_SECOND),
        "m" => Some(60 * NANOS_PER_SECOND),
        "h" => Some(3600 * NANOS_PER_SECOND),
        _ => None,
    }
}

fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let kept = fraction.get(..fraction.len().min(FRACTION_DIGITS_MAX))?;
    let fraction: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    let digits = u32::try_from(kept.len()).ok()?;
    whole
        .checked_mul(unit)?
        .checked_add(fraction.checked_mul(unit)? / 10_i128.checked_pow(digits)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurationText(pub(super) SignedDuration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_go_duration(&text).map(Self).map_err(de::Error::custom)
    }
}

/// A duration written as whole nanoseconds, or as text.
///
// Wire: the reference types `controller.cacheSyncTimeout` as a bare integer of nanoseconds; text is accepted too, because users
// expect the usual form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NanosOrText(pub(super) SignedDuration);

impl<'de> Deserialize<'de> for NanosOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = NanosOrText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as `2m`, or whole nanoseconds")
            }
            fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<NanosOrText, E> {
                Ok(NanosOrText(SignedDuration::from_nanos(nanos)))
            }
            fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<NanosOrText, E> {
                let nanos = i64::try_from(nanos).map_err(E::custom)?;
                Ok(NanosOrText(SignedDuration::from_nanos(nanos)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<NanosOrText, E> {
                parse_go_duration(text).map(NanosOrText).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindAddress {
    /// Nothing listens; written `0` (or left empty where that means off).
    Disabled,
    /// A TCP listener.
    Listen {
        /// Host name or address without brackets; empty means every address of the machine.
        host: String,
        /// TCP port; 0 lets the system choose one.
        port: u16,
    },
}

impl BindAddress {
    /// Listen on every address of the machine.
    pub const fn all(port: u16) -> Self {
        Self::Listen {
            host: String::new(),
            port,
        }
    }

    /// Parses `:8081`, `127.0.0.1:8081`, `[::1]:8081`, `name:8081`, or `0` for off.
    ///
    /// # Errors
    /// A sentence with the allowed forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self::Disabled);
        }
        let refuse = || {
            format!(
                "`{text}` is not a listen address; write `:8081`, `127.0.0.1:8081`, or `0` to switch it off"
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().map_err(|_bad| refuse())?;
        let host = match host.strip_prefix('[').map(|inner| inner.strip_suffix(']')) {
            Some(Some(inner)) => inner,
            Some(None) => return Err(refuse()),
            None if host.contains(':') => return Err(refuse()),
            None => host,
        };
        Ok(Self::Listen {
            host: host.into(),
            port,
        })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("0"),
            Self::Listen { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Listen { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Reads a listen address; empty text counts as absent, as in Go.
pub(super) fn bind_or_unset<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BindAddress>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => BindAddress::parse(text).map(Some).map_err(de::Error::custom),
    }
}

/// A kind written `Kind.version.group`, for example `PipelineRun.v1.tekton.dev`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersionKindName {
    /// `PipelineRun`.
    pub kind: String,
    /// `v1`.
    pub version: String,
    /// `tekton.dev`.
    pub group: String,
}

impl GroupVersionKindName {
    /// Parses `Kind.version.group`.
    ///
    /// # Errors
    /// `None` when one of the three parts is missing; the caller knows which message its key uses.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (version, group) = rest.split_once('.')?;
        let complete = !kind.is_empty() && !version.is_empty() && !group.is_empty();
        complete.then(|| Self {
            kind: kind.into(),
            version: version.into(),
            group: group.into(),
        })
    }
}

impl fmt::Display for GroupVersionKindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.kind, self.version, self.group)
    }
}

/// An entry of `integrations.externalFrameworks`.
pub(super) struct IntegrationKind(pub(super) GroupVersionKindName);

impl<'de> Deserialize<'de> for IntegrationKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // Wire: the message of spec/jobs.md 3.
        GroupVersionKindName::parse(&text)
            .map(Self)
            .ok_or_else(|| de::Error::custom("must be format, 'Kind.version.group.com'"))
    }
}

/// An entry's name in `multiKueue.externalFrameworks`.
pub(super) struct RemoteKind(pub(super) GroupVersionKindName);

impl<'de> Deserialize<'de> for RemoteKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // Wire: the message of spec/multikueue.md 7.
        GroupVersionKindName::parse(&text)
            .map(Self)
            .ok_or_else(|| de::Error::custom("must be in 'kind.version.group' format"))
    }
}

/// A resource quantity, kept as text; files may write it as a bare number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuantityText(pub(super) String);

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;
        impl Visitor<'_> for TextOrNumber {
            type Value = QuantityText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as `500m`, `2` or `4Gi`")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<QuantityText, E> {
                Ok(QuantityText(value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<QuantityText, E> {
                Ok(QuantityText(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<QuantityText, E> {
                Ok(QuantityText(value.to_string()))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<QuantityText, E> {
                if is_quantity(text) {
                    return Ok(QuantityText(text.into()));
                }
                Err(E::custom(format!(
                    "`{text}` is not a quantity; write a number such as `500m`, `2` or `4Gi`"
                )))
            }
        }
        deserializer.deserialize_any(TextOrNumber)
    }
}

const QUANTITY_SUFFIXES: &[&str] = &[
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
];

fn is_quantity(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number_len = body
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(body.len());
    let (number, suffix) = body.split_at(number_len);
    let dots = number.bytes().filter(|byte| *byte == b'.').count();
    let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .is_some_and(|power| power.parse::<i32>().is_ok());
    has_digit && dots <= 1 && (exponent || QUANTITY_SUFFIXES.contains(&suffix))
}
