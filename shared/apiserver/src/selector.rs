//! Label and field selectors, as written in queries and in objects.

use serde_json::Value;

use crate::json;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Demand {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

impl Demand {
    fn holds(&self, get: &dyn Fn(&str) -> Option<String>) -> bool {
        let number = |key: &str| get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(key, values) => get(key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => get(key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => get(key).is_some(),
            Self::Absent(key) => get(key).is_none(),
            Self::Greater(key, than) => number(key).is_some_and(|value| value > *than),
            Self::Less(key, than) => number(key).is_some_and(|value| value < *than),
        }
    }
}

/// Demands on labels, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Demand>);

impl Labels {
    /// Reads the query's syntax, such as `a=b,c in (d,e),!f`. *Errors*: what cannot be read.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut demands = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            demands.push(parse_demand(part).ok_or_else(|| {
                format!("unable to parse requirement: found '{part}', expected a label requirement")
            })?);
        }
        for demand in &demands {
            let (Demand::In(key, _)
            | Demand::NotIn(key, _)
            | Demand::Exists(key)
            | Demand::Absent(key)
            | Demand::Greater(key, _)
            | Demand::Less(key, _)) = demand;
            if !crate::names::is_qualified(key) {
                return Err(format!(
                    "unable to parse requirement: <nil>: Invalid value: {key:?}"
                ));
            }
        }
        Ok(Self(demands))
    }

    /// Reads `matchLabels` and `matchExpressions` of an object. An absent selector matches everything.
    pub(crate) fn of_object(selector: &Value) -> Self {
        let mut demands = Vec::new();
        if let Some(labels) = selector["matchLabels"].as_object() {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                demands.push(Demand::In(key.clone(), vec![value]));
            }
        }
        for expression in json::items(selector, &["matchExpressions"]) {
            let key = json::text(expression, &["key"]).to_owned();
            let values = || {
                json::texts(expression, &["values"])
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            };
            demands.push(match json::text(expression, &["operator"]) {
                "In" => Demand::In(key, values()),
                "NotIn" => Demand::NotIn(key, values()),
                "DoesNotExist" => Demand::Absent(key),
                _ => Demand::Exists(key),
            });
        }
        Self(demands)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels meet all demands.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let get = |key: &str| object["metadata"]["labels"][key].as_str().map(str::to_owned);
        self.0.iter().all(|demand| demand.holds(&get))
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_demand(part: &str) -> Option<Demand> {
    if let Some(key) = part.strip_prefix('!') {
        return Some(Demand::Absent(key.trim().to_owned()));
    }
    if let Some((head, list)) = part.split_once('(') {
        let values = list
            .strip_suffix(')')?
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let mut words = head.split_whitespace();
        let (key, operator) = (words.next()?.to_owned(), words.next()?);
        return match operator {
            "in" => Some(Demand::In(key, values)),
            "notin" => Some(Demand::NotIn(key, values)),
            _ => None,
        };
    }
    let pair = |separator: &str| {
        part.split_once(separator)
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
    };
    if let Some((key, value)) = pair("!=") {
        return Some(Demand::NotIn(key, vec![value]));
    }
    if let Some((key, value)) = pair("==").or_else(|| pair("=")) {
        return Some(Demand::In(key, vec![value]));
    }
    if let Some((key, value)) = pair(">") {
        return Some(Demand::Greater(key, value.parse().ok()?));
    }
    if let Some((key, value)) = pair("<") {
        return Some(Demand::Less(key, value.parse().ok()?));
    }
    let one_word = !part.contains(char::is_whitespace);
    one_word.then(|| Demand::Exists(part.to_owned()))
}

/// Demands on fields: path, value, and whether they must be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, String, Equal)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Equal {
    Yes,
    No,
}

impl Fields {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut demands = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, Equal::No)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, value, Equal::Yes)
            } else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            demands.push((path.trim().to_owned(), value.trim().to_owned(), equal));
        }
        Ok(Self(demands))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first field that the kind cannot be selected by.
    pub(crate) fn unknown(&self, allowed: &[String]) -> Option<&str> {
        self.0.iter().map(|(path, _, _)| path.as_str()).find(|path| {
            !["metadata.name", "metadata.namespace"].contains(path)
                && !allowed.iter().any(|allowed| allowed == path)
        })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, value, equal)| {
            let found = path
                .split('.')
                .try_fold(object, |here, field| here.get(field))
                .unwrap_or(&Value::Null);
            let found = match found {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => found.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
            };
            (found == *value) == (*equal == Equal::Yes)
        })
    }
}
