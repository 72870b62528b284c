//! The requested part of a list.

/// *Source*: `spec/api.md API-15`.
const LIMIT_DEFAULT: usize = 1000;
/// Limit: workloads in one answer. *Source*: `spec/api.md API-15`.
const LIMIT_MAX: usize = 100_000;

/// A value that is not a whole number: the parameter, and what was written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must be a whole number, not \"{1}\"")]
pub(super) struct NoNumber(&'static str, String);

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// How many items are left out at the beginning.
    pub(super) offset: usize,
    /// How many items are wanted.
    pub(super) limit: usize,
}

impl Page {
    /// Reads `limit` and `offset` of a query and ignores other parameters. The first value of each counts.
    pub(super) fn parse(query: &str) -> Result<Self, NoNumber> {
        let limit = match number(query, "limit")? {
            0 => LIMIT_DEFAULT,
            limit => limit.min(LIMIT_MAX),
        };
        let offset = number(query, "offset")?;
        Ok(Self { offset, limit })
    }

    /// The index after the page's last item.
    pub(super) fn end(self) -> usize {
        self.offset.saturating_add(self.limit)
    }

    pub(super) fn of<T>(self, items: impl Iterator<Item = T>) -> Vec<T> {
        items.skip(self.offset).take(self.limit).collect()
    }
}

/// Absent, empty and negative count as 0.
fn number(query: &str, key: &'static str) -> Result<usize, NoNumber> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let written = pairs.find(|(name, _)| *name == key).map(|(_, value)| value);
    match written {
        None | Some("") => Ok(0),
        Some(text) => {
            let number: i64 = text.parse().map_err(|_other| NoNumber(key, text.to_owned()))?;
            Ok(usize::try_from(number.max(0)).unwrap_or(usize::MAX))
        }
    }
}
