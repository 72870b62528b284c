//! Resources that stand for other resources. *Source*: `spec/admission-engine.md 4.5` step 6.
//!
//! Invariant: products are exact in 128 bits, saturate beyond, and are rounded up once, per output.

use std::collections::BTreeMap;

use super::Amounts;
use crate::amount::Amount;
use crate::name::ResourceName;

/// One entry of `resources.transformations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformation {
    /// The resource that is rewritten.
    pub input: ResourceName,
    /// What happens to it.
    pub strategy: Input,
    /// The resource whose amount multiplies that of the input; a resource that the pod does not request counts as 1.
    pub multiply_by: Option<ResourceName>,
    /// Thousandths of each output per unit of input.
    pub outputs: BTreeMap<ResourceName, i64>,
}

/// What happens to the input of a [`Transformation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// It counts beside the outputs.
    #[default]
    Retain,
    /// The outputs count in its place.
    Replace,
}

/// Rewrites requests. The output of one transformation is not the input of another.
pub(super) fn apply(rules: &[Transformation], asked: &Amounts) -> Amounts {
    let mut result = Amounts::new();
    let mut add = |name: &ResourceName, amount: Amount| {
        let sum = result.entry(name.clone()).or_default();
        *sum = sum.plus(amount);
    };
    for (name, amount) in asked {
        let Some(rule) = rules.iter().find(|rule| rule.input == *name) else {
            add(name, *amount);
            continue;
        };
        if rule.strategy == Input::Retain {
            add(name, *amount);
        }
        let times = rule
            .multiply_by
            .as_ref()
            .and_then(|by| Some((by, *asked.get(by)?)));
        for (output, factor) in &rule.outputs {
            let mut product = thousandths(name, *amount).saturating_mul(i128::from(*factor));
            let mut scale = THOUSAND;
            if let Some((by, amount)) = times {
                product = product.saturating_mul(thousandths(by, amount));
                scale *= THOUSAND;
            }
            if output.as_str() != CPU {
                scale *= THOUSAND;
            }
            add(output, rounded_up(product, scale));
        }
    }
    result
}

const CPU: &str = "cpu";
const THOUSAND: i128 = 1000;

/// An amount in thousandths of its unit; the unit of `cpu` is the core.
fn thousandths(name: &ResourceName, amount: Amount) -> i128 {
    let value = i128::from(amount.get());
    if name.as_str() == CPU {
        value
    } else {
        value * THOUSAND
    }
}

fn rounded_up(product: i128, scale: i128) -> Amount {
    let whole = product.div_euclid(scale);
    let whole = if product.rem_euclid(scale) == 0 {
        whole
    } else {
        whole.saturating_add(1)
    };
    Amount::new(i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX }))
}
