//! Kubernetes quantities as numbers: thousandths of the base unit, rounded up.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use roadstead_core::quantity;

/// Amounts by resource name, in thousandths (of a core, a byte, a device).
pub(super) type Amounts = BTreeMap<String, i64>;

/// Thousandths in one.
pub(super) const ONE: i64 = 1000;

/// All amounts of a resource list, or the name of one that cannot be read or is beyond 64 bits.
pub(super) fn parse_all(list: &BTreeMap<String, Quantity>) -> Result<Amounts, String> {
    list.iter()
        .map(|(name, quantity)| {
            // Why parsed as CPU, whatever the resource: CPU quantities are read in thousandths.
            let amount = quantity::parse("cpu", &quantity.0).ok();
            let amount = amount.filter(|amount| !amount.is_unlimited());
            let amount = amount.ok_or_else(|| format!("{name}: {}", quantity.0))?;
            Ok((name.clone(), amount.get()))
        })
        .collect()
}
