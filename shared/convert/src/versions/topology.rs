//! The two forms of a pod set's topology assignment: domain by domain (`v1beta1`) and column by column (`v1beta2`).
//!
//! Invariant: the order of the domains is kept; it says which pod goes where (`spec/api.md` API-9.3).

use serde_json::{Value, json};

use super::fields::{Fields, Wrong, take};

pub(super) const ASSIGNMENT: &str = "status.admission.podSetAssignments[].topologyAssignment";
/// The most domains of one slice, and of one assignment in the form of `v1beta1`.
///
/// Limit: it is the schema's limit for one slice. A slice with constant columns could otherwise stand for billions of domains in a few
/// bytes.
const DOMAINS_MAX: usize = 100_000;
const LEVELS: Wrong = Wrong::new(ASSIGNMENT, "an object with a list of levels");
const SLICES: Wrong = Wrong::new(
    ASSIGNMENT,
    "levels and slices, each with domainCount, one universal or individual column per level, and podCounts, at most 100000 domains in all",
);
const DOMAINS: Wrong = Wrong::new(
    ASSIGNMENT,
    "levels and domains, each with one value per level and a count",
);

/// Replaces `domains` by `slices`.
pub(super) fn to_slices(assignment: &mut Fields) -> Result<(), Wrong> {
    let levels = level_count(assignment)?;
    let domains = match take(assignment, "domains") {
        None => return Ok(()),
        Some(Value::Array(domains)) => domains,
        Some(_) => return Err(DOMAINS),
    };
    let slices: Option<Vec<Value>> = domains
        .chunks(DOMAINS_MAX)
        .map(|chunk| slice(chunk, levels))
        .collect();
    assignment.insert("slices".to_owned(), Value::Array(slices.ok_or(DOMAINS)?));
    Ok(())
}

/// Replaces `slices` by `domains`.
pub(super) fn to_domains(assignment: &mut Fields) -> Result<(), Wrong> {
    let levels = level_count(assignment)?;
    let slices = match take(assignment, "slices") {
        None => return Ok(()),
        Some(Value::Array(slices)) => slices,
        Some(_) => return Err(SLICES),
    };
    let mut domains = Vec::new();
    for slice in &slices {
        let room = DOMAINS_MAX - domains.len();
        write_out(slice, levels, room, &mut domains).ok_or(SLICES)?;
    }
    assignment.insert("domains".to_owned(), Value::Array(domains));
    Ok(())
}

fn level_count(assignment: &Fields) -> Result<usize, Wrong> {
    let levels = assignment.get("levels").and_then(Value::as_array);
    levels.map(Vec::len).ok_or(LEVELS)
}

/// One slice for all these domains; `None` if they do not all have `levels` levels.
fn slice(domains: &[Value], levels: usize) -> Option<Value> {
    let mut columns = vec![Vec::with_capacity(domains.len()); levels];
    let mut counts = Vec::with_capacity(domains.len());
    for domain in domains {
        let values = domain.get("values")?.as_array()?;
        if values.len() != levels {
            return None;
        }
        for (column, value) in columns.iter_mut().zip(values) {
            column.push(value.as_str()?);
        }
        counts.push(domain.get("count")?.as_i64()?);
    }
    let columns: Vec<Value> = columns.iter().map(|values| column(values)).collect();
    let counts = match counts.as_slice() {
        [first, rest @ ..] if rest.iter().all(|count| count == first) => json!({"universal": first}),
        counts => json!({"individual": counts}),
    };
    Some(json!({"domainCount": domains.len(), "valuesPerLevel": columns, "podCounts": counts}))
}

/// The values of one level: one value if all are equal, otherwise the common prefix and suffix and the rest of each.
fn column(values: &[&str]) -> Value {
    let Some((first, rest)) = values.split_first() else {
        return json!({"individual": {"roots": []}});
    };
    if rest.iter().all(|value| value == first) {
        return json!({"universal": first});
    }
    let prefix = rest.iter().fold(*first, |shared, value| {
        let same = shared.char_indices().zip(value.chars());
        let end = same.take_while(|((_, a), b)| a == b).last();
        &shared[..end.map_or(0, |((at, a), _)| at + a.len_utf8())]
    });
    // Why after the prefix: prefix and suffix must not overlap in the shortest value.
    let tail = |value: &'_ str| value.len() - prefix.len();
    let first_tail = &first[prefix.len()..];
    let suffix = rest.iter().fold(first_tail, |shared, value| {
        let value_tail = &value[value.len() - tail(value)..];
        let same = shared.char_indices().rev().zip(value_tail.chars().rev());
        let start = same.take_while(|((_, a), b)| a == b).last();
        &shared[start.map_or(shared.len(), |((at, _), _)| at)..]
    });
    let roots = values
        .iter()
        .map(|value| &value[prefix.len()..value.len() - suffix.len()]);
    let mut individual = json!({"roots": roots.collect::<Vec<_>>()});
    for (end, text) in [("prefix", prefix), ("suffix", suffix)] {
        if !text.is_empty() {
            individual[end] = text.into();
        }
    }
    json!({"individual": individual})
}

/// Appends the domains of a slice; `None` if it does not have `levels` levels or has more than `room` domains.
fn write_out(slice: &Value, levels: usize, room: usize, domains: &mut Vec<Value>) -> Option<()> {
    let count = usize::try_from(slice.get("domainCount")?.as_u64()?).ok()?;
    let columns = slice.get("valuesPerLevel")?.as_array()?;
    if columns.len() != levels || count > room {
        return None;
    }
    let columns: Option<Vec<_>> = columns.iter().map(|column| Column::of(column, count)).collect();
    let columns = columns?;
    let pods = slice.get("podCounts")?;
    let pods = match (present(pods, "universal"), present(pods, "individual")) {
        (Some(count), None) => vec![count.as_i64()?; 1],
        (None, Some(counts)) => {
            let counts: Option<Vec<i64>> = counts.as_array()?.iter().map(Value::as_i64).collect();
            counts.filter(|counts| counts.len() == count)?
        }
        (None, None) | (Some(_), Some(_)) => return None,
    };
    domains.reserve(count);
    for index in 0..count {
        let values: Option<Vec<Value>> = columns.iter().map(|column| column.value(index)).collect();
        // Why: one number stands for all domains.
        let pods = pods.get(index).or_else(|| pods.first())?;
        domains.push(json!({"values": values?, "count": pods}));
    }
    Some(())
}

/// The values of one level in the domains of a slice.
enum Column<'a> {
    Universal(&'a str),
    Individual {
        prefix: &'a str,
        roots: &'a [Value],
        suffix: &'a str,
    },
}

impl<'a> Column<'a> {
    fn of(column: &'a Value, count: usize) -> Option<Self> {
        match (present(column, "universal"), present(column, "individual")) {
            (Some(value), None) => Some(Self::Universal(value.as_str()?)),
            (None, Some(individual)) => {
                let end = |name| match present(individual, name) {
                    Some(text) => text.as_str(),
                    None => Some(""),
                };
                let roots = individual.get("roots")?.as_array()?;
                (roots.len() == count).then_some(Self::Individual {
                    prefix: end("prefix")?,
                    roots,
                    suffix: end("suffix")?,
                })
            }
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    fn value(&self, index: usize) -> Option<Value> {
        match self {
            Self::Universal(value) => Some((*value).into()),
            Self::Individual {
                prefix,
                roots,
                suffix,
            } => {
                let root = roots.get(index)?.as_str()?;
                Some(format!("{prefix}{root}{suffix}").into())
            }
        }
    }
}

/// A field that is present and not null.
fn present<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}
