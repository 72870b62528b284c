//! Kubernetes quantities: parsed exactly, printed canonically.
//!
//! A quantity is a decimal number with a suffix (`500m`, `1.5Gi`, `2e3`). Parsing is exact whatever the number of digits: the digits are
//! kept as they are and multiplied by powers of two digit by digit. As in the reference, a value is first rounded **away from zero** to
//! billionths. A value with a binary suffix is then kept within 64 bits. An amount is rounded away from zero to whole units. *Source*:
//! `spec/api.md API-16`; `quantity/cases.txt` holds the results of the reference library.
//!
//! Invariant: no text, however long or strange, causes a panic, a wrap-around or a long computation.

use thiserror::Error as ThisError;

use crate::amount::Amount;
use crate::name::ResourceName;
use crate::queue::Weight;

/// *Limit*: the longest accepted text, in bytes. Longer texts are refused, so that the work per field is bounded.
pub const TEXT_LEN_MAX: usize = 256;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The text is empty.
    #[error("a quantity must not be empty: write a number such as 2, 500m or 4Gi")]
    Empty,
    /// The text is longer than [`TEXT_LEN_MAX`].
    #[error("a quantity must not be longer than {TEXT_LEN_MAX} characters")]
    TooLong,
    /// The text does not start with a number.
    #[error("\"{0}\" is not a quantity: it must start with a number, as in 2, 500m or 4Gi")]
    NoNumber(String),
    /// What follows the number is not a suffix.
    #[error(
        "\"{0}\" is not a quantity: after the number only n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3 may follow"
    )]
    UnknownSuffix(String),
}

/// Parses a weight of fair sharing, exact to a billionth; a negative weight counts as zero.
///
/// *Errors*: the text is not a quantity.
pub fn weight(text: &str) -> Result<Weight, Error> {
    let nano = Exact::read(text)?.0.whole(9);
    Ok(Weight::from_nano(u64::try_from(nano).unwrap_or(0)))
}

/// Parses the quantity of a resource: `cpu` in millicores, everything else in base units, rounded away from zero.
///
/// *Limits*: a value beyond 64 bits becomes [`Amount::UNLIMITED`] (or the smallest amount, when negative).
///
/// *Errors*: the text is not a quantity.
pub fn parse(resource: &str, text: &str) -> Result<Amount, Error> {
    let thousandths = if resource == "cpu" { 3 } else { 0 };
    Ok(Amount::new(Exact::read(text)?.0.whole(thousandths)))
}

/// The form in which the API server prints a quantity: `1500m` for `1.5`, `1536Mi` for `1.5Gi`, `1e3` for `1000e0`.
///
/// The kind of suffix stays the same. Only a binary suffix becomes decimal if it would need a fraction or the value is below 1024. The
/// suffix is the largest that leaves no fraction.
///
/// *Errors*: the text is not a quantity.
pub fn canonical(text: &str) -> Result<String, Error> {
    let (exact, form) = Exact::read(text)?;
    Ok(exact.print(form))
}

/// Prints an amount of a resource for people: like [`wire`], but an amount without bound is `unlimited`.
pub fn print(resource: &ResourceName, amount: Amount) -> String {
    if amount.is_unlimited() {
        return "unlimited".to_owned();
    }
    wire(resource.as_str(), amount)
}

/// Prints an amount of a resource as the API server would: `cpu` from millicores with decimal suffixes, memory-like
/// resources with binary suffixes, others with decimal ones; always the largest suffix without a fraction.
pub fn wire(resource: &str, amount: Amount) -> String {
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    const MILLI: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
    let value = amount.get();
    let binary = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    let (base, suffixes) = if resource == "cpu" {
        (1000, MILLI.as_slice())
    } else if binary && value.unsigned_abs() >= 1024 && value != i64::MIN {
        // Wire: the smallest number is printed in full, because its absolute value does not fit in 64 bits.
        (1024, BINARY.as_slice())
    } else {
        // Wire: decimal also for binary resources below 1024, as the API server prints them.
        (1000, DECIMAL.as_slice())
    };
    if value == 0 {
        return "0".to_owned();
    }
    let (mut number, mut step) = (value, 0);
    while number % base == 0 && step + 1 < suffixes.len() {
        number /= base;
        step += 1;
    }
    format!("{number}{}", suffixes.get(step).copied().unwrap_or_default())
}

/// Whether two texts are the same quantity (`1000m` and `1`). Texts that are no quantities are compared byte by byte.
pub fn same(left: &str, right: &str) -> bool {
    match (Exact::read(left), Exact::read(right)) {
        (Ok((left, _)), Ok((right, _))) => left == right,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        (Err(_), Err(_)) => left == right,
    }
}

/// The suffixes that stand for powers of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The exponent of the smallest part of a unit that is kept: billionths.
const NANO: i64 = -9;
/// The exponent of the largest decimal suffix.
const EXA: i64 = 18;

/// The kind of suffix that a quantity was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A suffix from `n` to `E`, or none.
    Decimal,
    /// A suffix from `Ki` to `Ei`.
    Binary,
    /// An exponent such as `e3`.
    Exponent,
}

/// An exact number: `digits × 10^exponent`. There are no zeros at either end; zero has no digits and is not negative.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exact {
    negative: bool,
    /// Most significant first, each below ten.
    digits: Vec<u8>,
    exponent: i64,
}

impl Exact {
    fn read(text: &str) -> Result<(Self, Form), Error> {
        if text.is_empty() {
            return Err(Error::Empty);
        }
        if text.len() > TEXT_LEN_MAX {
            return Err(Error::TooLong);
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let split = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = rest.split_at(split(rest));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(split(rest)),
            None => ("", rest),
        };
        // Wire: the API server accepts a suffix without a number as zero, so such objects exist.
        let no_number = whole.is_empty() && fraction.is_empty();
        let (form, ten, two) = scale(suffix).ok_or_else(|| {
            if no_number {
                Error::NoNumber(text.to_owned())
            } else {
                Error::UnknownSuffix(text.to_owned())
            }
        })?;
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        let shift = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let exact = Self {
            negative,
            digits: doubled(&digits, two),
            exponent: ten.saturating_sub(shift),
        };
        let exact = exact.trimmed().rounded_to_nano();
        Ok(match form {
            Form::Binary => (exact.capped(), form),
            Form::Decimal | Form::Exponent => (exact, form),
        })
    }

    /// Rounded to billionths, away from zero.
    fn rounded_to_nano(mut self) -> Self {
        let cut = usize::try_from(NANO.saturating_sub(self.exponent)).unwrap_or(0);
        if cut == 0 || self.digits.is_empty() {
            return self;
        }
        // Invariant: there are no zeros at the end, so the digits that are cut off are not all zero.
        self.digits.truncate(self.digits.len().saturating_sub(cut));
        self.exponent = NANO;
        let nines = self.digits.iter().rev().take_while(|digit| **digit == 9).count();
        let kept = self.digits.len() - nines;
        self.digits.truncate(kept);
        match self.digits.last_mut() {
            Some(digit) => *digit += 1,
            None => self.digits.push(1),
        }
        self.digits.extend(std::iter::repeat_n(0, nines));
        self.trimmed()
    }

    /// Wire: only values with binary suffixes are kept within 64 bits, and the smallest number is minus the largest.
    fn capped(self) -> Self {
        let negative = self.negative;
        let size = Self {
            negative: false,
            ..self.clone()
        };
        if size.whole(0) < i64::MAX {
            return self;
        }
        let digits = i64::MAX.to_string().bytes().map(|b| b - b'0').collect();
        Self {
            negative,
            digits,
            exponent: 0,
        }
    }

    fn print(&self, form: Form) -> String {
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let value = self.whole(0);
        if form == Form::Binary && self.exponent >= 0 && value.unsigned_abs() >= 1024 {
            let (mut number, mut step) = (value, 0);
            while number % 1024 == 0 && step + 1 < BINARY.len() {
                number /= 1024;
                step += 1;
            }
            return format!("{number}{}", BINARY.get(step).copied().unwrap_or_default());
        }
        let mut exponent = self.exponent - self.exponent.rem_euclid(3);
        if form != Form::Exponent {
            exponent = exponent.min(EXA);
        }
        let zeros = usize::try_from(self.exponent - exponent).unwrap_or(0);
        let digits = self.digits.iter().copied().chain(std::iter::repeat_n(0, zeros));
        let mut text = if self.negative {
            "-".to_owned()
        } else {
            String::new()
        };
        text.extend(digits.map(|digit| char::from(b'0' + digit)));
        if form == Form::Exponent {
            if exponent != 0 {
                text.push('e');
                text.push_str(&exponent.to_string());
            }
        } else {
            let step = usize::try_from((exponent - NANO) / 3).unwrap_or(0);
            text.push_str(DECIMAL.get(step).copied().unwrap_or_default());
        }
        text
    }

    fn trimmed(mut self) -> Self {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent = self.exponent.saturating_add(1);
        }
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        if self.digits.is_empty() {
            self.negative = false;
            self.exponent = 0;
        }
        self
    }

    /// The value times `10^shift` as a whole number, rounded away from zero, saturating.
    fn whole(&self, shift: i64) -> i64 {
        let exponent = self.exponent.saturating_add(shift);
        let cut = usize::try_from(exponent.saturating_neg()).unwrap_or(0);
        let kept = self.digits.len().saturating_sub(cut);
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        let sign = if self.negative { -1 } else { 1 };
        let mut value = 0_i64;
        let zeros = usize::try_from(exponent).unwrap_or(0).min(DIGITS_MAX);
        let zeros = if kept == 0 { 0 } else { zeros };
        let kept_digits = self.digits.iter().take(kept).copied();
        for digit in kept_digits.chain(std::iter::repeat_n(0, zeros)) {
            let next = value
                .checked_mul(10)
                .and_then(|v| v.checked_add(sign * i64::from(digit)));
            match next {
                Some(next) => value = next,
                None => return limit,
            }
        }
        // Invariant: there are no zeros at the end, so the digits that were cut off are not all zero.
        let rounding = if kept < self.digits.len() { sign } else { 0 };
        value.checked_add(rounding).unwrap_or(limit)
    }
}

/// More decimal digits than any `i64` has: once the value overflows, further zeros change nothing.
const DIGITS_MAX: usize = 20;

/// The kind of a suffix, and the powers of ten and of two that it stands for.
fn scale(suffix: &str) -> Option<(Form, i64, u32)> {
    use Form::{Binary, Decimal, Exponent};
    Some(match suffix {
        "n" => (Decimal, -9, 0),
        "u" => (Decimal, -6, 0),
        "m" => (Decimal, -3, 0),
        "" => (Decimal, 0, 0),
        "k" => (Decimal, 3, 0),
        "M" => (Decimal, 6, 0),
        "G" => (Decimal, 9, 0),
        "T" => (Decimal, 12, 0),
        "P" => (Decimal, 15, 0),
        "E" => (Decimal, 18, 0),
        "Ki" => (Binary, 0, 10),
        "Mi" => (Binary, 0, 20),
        "Gi" => (Binary, 0, 30),
        "Ti" => (Binary, 0, 40),
        "Pi" => (Binary, 0, 50),
        "Ei" => (Binary, 0, 60),
        exponent => {
            let number = exponent.strip_prefix(['e', 'E'])?;
            (Exponent, i64::from(number.parse::<i32>().ok()?), 0)
        }
    })
}

fn doubled(digits: &[u8], power: u32) -> Vec<u8> {
    if power == 0 {
        return digits.to_vec();
    }
    let factor = 1_u128.checked_shl(power).unwrap_or(1);
    let mut carry = 0_u128;
    let mut reversed = Vec::with_capacity(digits.len() + DIGITS_MAX);
    for digit in digits.iter().rev() {
        carry += u128::from(*digit) * factor;
        reversed.push(u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
    while carry > 0 {
        reversed.push(u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
    reversed.reverse();
    reversed
}

#[cfg(test)]
mod tests;
