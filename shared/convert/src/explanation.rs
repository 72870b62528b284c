//! Why a Workload waits: the manager's record, as the text of annotation `roadstead.dev/explanation`, and [`view`], what is shown of it.
//!
//! Invariant: the text has at most [`BYTES_MAX`] bytes. If it is too long, the messages of the workers are left out first, because users
//! can find them elsewhere, then the last clusters.
//!
//! *Source*: `spec/experience.md 5`.

use jiff::Timestamp;
use roadstead_core::dispatch::record::{Answered, Record};
use serde::{Deserialize, Serialize};

pub mod line;
pub mod view;

/// *Limit*: length of the text, in bytes.
pub const BYTES_MAX: usize = 2048;
/// *Limit*: length of the message of one worker, in characters.
const DETAIL_CHARS_MAX: usize = 200;
/// *Limit*: length of the sentence, in characters.
const MESSAGE_CHARS_MAX: usize = 400;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    reason: String,
    message: String,
    next: String,
    since: Timestamp,
    #[serde(default)]
    clusters: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    name: String,
    answer: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    detail: String,
    since: Timestamp,
}

/// Prints a record as text.
pub fn print(record: &Record) -> String {
    let lines = record.answers.iter().map(|answered| Line {
        name: answered.cluster.clone(),
        answer: answered.reply.clone(),
        detail: cut(&answered.detail, DETAIL_CHARS_MAX),
        since: answered.since,
    });
    let mut text = Text {
        reason: record.reason.clone(),
        message: cut(&record.message, MESSAGE_CHARS_MAX),
        next: cut(&record.next, MESSAGE_CHARS_MAX),
        since: record.since,
        clusters: lines.collect(),
    };
    loop {
        let printed = serde_json::to_string(&text).unwrap_or_default();
        if printed.len() <= BYTES_MAX {
            return printed;
        }
        let longest = text.clusters.iter_mut().max_by_key(|line| line.detail.len());
        match longest {
            Some(line) if !line.detail.is_empty() => line.detail.clear(),
            Some(_) => {
                text.clusters.pop();
            }
            None => {
                text.message.clear();
                text.next.clear();
            }
        }
    }
}

/// Parses the text of a record; `None` when it is not one.
pub fn parse(text: &str) -> Option<Record> {
    let Text {
        reason,
        message,
        next,
        since,
        clusters,
    } = serde_json::from_str(text).ok()?;
    let answers = clusters.into_iter().map(|line| Answered {
        cluster: line.name,
        reply: line.answer,
        detail: line.detail,
        since: line.since,
    });
    Some(Record {
        reason,
        message,
        next,
        since,
        answers: answers.collect(),
    })
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use roadstead_core::dispatch::record::{Answered, Record};

    use super::{BYTES_MAX, parse, print};

    fn record(clusters: usize, detail: &str) -> Record {
        let since = Timestamp::from_second(1_700_000_000).unwrap();
        let answered = |index: usize| Answered {
            cluster: format!("cluster-{index}"),
            reply: "NoRoom".to_owned(),
            detail: detail.to_owned(),
            since,
        };
        Record {
            reason: "WaitingForWorkers".to_owned(),
            message: "waiting for quota".to_owned(),
            next: "look there".to_owned(),
            since,
            answers: (0..clusters).map(answered).collect(),
        }
    }

    /// Spec: experience 5
    #[test]
    fn what_is_printed_is_read_again() {
        let record = record(2, "no cpu");
        assert_eq!(parse(&print(&record)), Some(record));
        assert_eq!(parse("{}"), None);
        assert_eq!(parse("so what"), None);
    }

    proptest! {
        /// Spec: experience 5
        #[test]
        fn it_is_never_too_long_and_always_has_its_reason(clusters in 0..40_usize, detail in "\\PC{0,400}") {
            let text = print(&record(clusters, &detail));
            prop_assert!(text.len() <= BYTES_MAX);
            prop_assert_eq!(parse(&text).unwrap().reason, "WaitingForWorkers");
        }
    }
}
