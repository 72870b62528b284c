//! The limit ranges of a namespace, taken together. *Source*: `spec/admission-engine.md 4.5`, last sentence.

use super::{Amounts, Findings, Place, Pod, Resources, containers, fill_in};

/// The combined limit ranges of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bounds and defaults of each container.
    pub container: Bounds,
    /// Bounds of each pod.
    pub pod: Bounds,
}

/// Bounds and defaults for one type of object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The least amounts.
    pub min: Amounts,
    /// The largest amounts.
    pub max: Amounts,
    /// The limit of a container without its own limit.
    pub default: Amounts,
    /// The request of a container without its own request.
    pub default_request: Amounts,
}

impl Bounds {
    /// Adds further bounds: the narrower bound counts, and the first default.
    pub fn add(&mut self, other: &Self) {
        let merge = |to: &mut Amounts, from: &Amounts, narrower: fn(_, _) -> _| {
            for (name, amount) in from {
                let kept = to.entry(name.clone()).or_insert(*amount);
                *kept = narrower(*kept, *amount);
            }
        };
        merge(&mut self.min, &other.min, Ord::max);
        merge(&mut self.max, &other.max, Ord::min);
        fill_in(&mut self.default, &other.default);
        fill_in(&mut self.default_request, &other.default_request);
    }
}

impl Limits {
    /// Adds a further limit range; the order matters for defaults.
    pub fn add(&mut self, other: &Self) {
        self.container.add(&other.container);
        self.pod.add(&other.pod);
    }

    pub(super) fn fill(&self, resources: &mut Resources) {
        fill_in(&mut resources.limits, &self.container.default);
        fill_in(&mut resources.requests, &self.container.default_request);
    }

    /// Looks for amounts that are out of bounds. A resource that a container does not name is not checked.
    pub(super) fn check(&self, path: &str, pod: &Pod, total: &Amounts, findings: &mut Findings) {
        for (place, container) in containers(path, pod) {
            let Resources { requests, limits } = &container.resources;
            self.container.check(place, [requests, limits], findings);
        }
        let whole = Place {
            spec: path,
            container: None,
        };
        self.pod.check(whole, [total, &pod.whole.limits], findings);
    }
}

impl Bounds {
    fn check(&self, place: Place<'_>, [requests, limits]: [&Amounts; 2], findings: &mut Findings) {
        let fields = [("requests", requests), ("limits", limits)];
        let named = |name| fields.map(|(field, amounts)| amounts.get(name).map(|amount| (field, *amount)));
        let mut tell = |field, name, text| {
            findings.outside(&format!("{place}.resources.{field}[{name}]"), text);
        };
        for (name, max) in &self.max {
            if let Some((field, _)) = named(name).into_iter().flatten().find(|(_, amount)| amount > max) {
                tell(field, name, "requests must not be above the limitRange max");
            }
        }
        for (name, min) in &self.min {
            if let Some((field, _)) = named(name).into_iter().flatten().find(|(_, amount)| amount < min) {
                tell(field, name, "requests must not be below the limitRange min");
            }
        }
    }
}
