//! A place in an object. Its text is rendered only when a message needs it.

use std::fmt;

/// The way from an object down to a value in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Top,
    Field(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl<'a> Place<'a> {
    pub(crate) const fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) const fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    pub(crate) const fn is_top(&self) -> bool {
        matches!(self, Self::Top)
    }

    /// The name of the field that it is; nothing for an element of a list.
    pub(crate) const fn name(&self) -> &'a str {
        match self {
            Self::Field(_, name) => name,
            Self::Top | Self::Item(..) => "",
        }
    }
}

/// Such as `spec.containers[0].name`.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Field(Self::Top, name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

impl From<&Place<'_>> for String {
    fn from(place: &Place<'_>) -> Self {
        place.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_place_reads_as_kubernetes_writes_it() {
        let (top, spec) = (Place::Top, Place::Top.field("spec"));
        let list = spec.field("containers");
        let item = list.item(3);
        assert_eq!(item.field("name").to_string(), "spec.containers[3].name");
        assert_eq!(
            (top.to_string(), item.name(), list.name()),
            (String::new(), "", "containers")
        );
    }
}
