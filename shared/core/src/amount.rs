//! Amounts of a resource: 64-bit integers that saturate.
//!
//! Invariant: arithmetic never wraps and never panics.

use std::fmt;

/// An amount of one resource. *Units*: `cpu` in millicores, everything else in base units (bytes, counts).
///
/// *Limits*: [`Amount::UNLIMITED`] (`i64::MAX`) stands for a quota without bound. *Source*: `spec/api.md API-16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// The amount 0.
    pub const ZERO: Self = Self(0);
    /// A quota without bound.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// An amount of `value` units.
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// The number of units.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this stands for "no bound".
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// The sum; unlimited plus anything stays unlimited.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() {
            return Self::UNLIMITED;
        }
        Self(self.0.saturating_add(other.0))
    }

    /// The difference. Unlimited minus bounded is unlimited, bounded minus unlimited is the smallest amount,
    /// unlimited minus unlimited is zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self(i64::MIN),
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
    }

    /// This amount `count` times.
    #[must_use]
    pub const fn times(self, count: i64) -> Self {
        if self.is_unlimited() {
            return if count == 0 { Self::ZERO } else { Self::UNLIMITED };
        }
        Self(self.0.saturating_mul(count))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            f.write_str("unlimited")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Amount;

    /// The exact result, clamped to 64 bits.
    fn held(value: i128) -> Amount {
        let bound = value.clamp(i64::MIN.into(), i64::MAX.into());
        Amount::new(i64::try_from(bound).unwrap())
    }

    proptest! {
        /// Spec: api API-16.
        #[test]
        fn bounded_amounts_calculate_exactly_and_saturate(left in i64::MIN..i64::MAX, right in i64::MIN..i64::MAX) {
            let (a, b) = (Amount::new(left), Amount::new(right));
            let (x, y) = (i128::from(left), i128::from(right));
            prop_assert_eq!(a.plus(b), held(x + y));
            prop_assert_eq!(a.minus(b), held(x - y));
            prop_assert_eq!(a.times(right), held(x * y));
        }

        /// Spec: api API-16.
        #[test]
        fn unlimited_stays_so(bounded in i64::MIN..i64::MAX, count in 1_i64..) {
            let bounded = Amount::new(bounded);
            prop_assert!(Amount::UNLIMITED.plus(bounded).is_unlimited());
            prop_assert!(bounded.plus(Amount::UNLIMITED).is_unlimited());
            prop_assert!(Amount::UNLIMITED.minus(bounded).is_unlimited());
            prop_assert!(Amount::UNLIMITED.times(count).is_unlimited());
            prop_assert_eq!(bounded.minus(Amount::UNLIMITED), Amount::new(i64::MIN));
        }
    }

    /// Spec: api API-16.
    #[test]
    fn unlimited_absorbs_and_differences_saturate() {
        let five = Amount::new(5);
        assert_eq!(Amount::UNLIMITED.plus(five), Amount::UNLIMITED);
        assert_eq!(Amount::UNLIMITED.minus(five), Amount::UNLIMITED);
        assert_eq!(five.minus(Amount::UNLIMITED), Amount::new(i64::MIN));
        assert_eq!(Amount::UNLIMITED.minus(Amount::UNLIMITED), Amount::ZERO);
        assert_eq!(Amount::new(i64::MAX - 1).plus(five), Amount::UNLIMITED);
        assert_eq!(Amount::new(i64::MAX / 2).times(3), Amount::UNLIMITED);
    }
}
