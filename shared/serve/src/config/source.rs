//! Where the text of a configuration comes from: a file, standard input, or a `ConfigMap` that holds the file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use super::{Error, FILE_BYTES_MAX};

const STANDARD_INPUT: &str = "-";
/// The API group of every configuration file.
const GROUP: &str = "config.kueue.x-k8s.io/";

/// A text, and its name in problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file, and the place in it where the text is.
    pub origin: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than [`FILE_BYTES_MAX`].
    pub fn read(file: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read {
            path: file.to_owned(),
            source,
        };
        let from: Box<dyn io::Read> = if file.as_os_str() == STANDARD_INPUT {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(file).map_err(failed)?)
        };
        let mut text = String::new();
        from.take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(failed)?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
            return Err(Error::TooLarge {
                path: file.to_owned(),
            });
        }
        Ok(Self {
            origin: file.display().to_string(),
            text,
        })
    }

    /// The configuration inside a `ConfigMap`; any other text stays as it is.
    ///
    /// Positions of problems count from the first line of the inner text.
    #[must_use]
    pub fn unwrapped(self) -> Self {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&self.text).unwrap_or_default();
        let maps = documents
            .iter()
            .filter(|document| document["kind"] == "ConfigMap");
        let mut entries = maps
            .filter_map(|map| map["data"].as_object())
            .flat_map(|data| data.iter().filter_map(|(key, text)| Some((key, text.as_str()?))));
        match entries.find(|(_, text)| text.contains(GROUP)) {
            Some((key, text)) => Self {
                origin: format!("{} data[{key}]", self.origin),
                text: text.to_owned(),
            },
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Source {
        Source {
            origin: "f".to_owned(),
            text: text.to_owned(),
        }
    }

    /// Spec: api API-13
    #[test]
    fn a_config_map_is_unwrapped_and_a_file_is_not() {
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnmaespace: x\n";
        assert_eq!(of(file).unwrapped(), of(file));
        assert_eq!(of("a: [").unwrapped(), of("a: ["));
        let map = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: n}}\n---\napiVersion: v1\nkind: ConfigMap\ndata:\n  other: text\n  \
             controller_manager_config.yaml: |\n    {}",
            file.trim_end().replace('\n', "\n    ")
        );
        let inner = of(&map).unwrapped();
        assert_eq!(inner.origin, "f data[controller_manager_config.yaml]");
        assert_eq!(inner.text.trim_end(), file.trim_end());
    }
}
