//! The output while the demo runs: one line per change, for logs and terminals alike.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use crate::Progress;
use crate::observer::ledger::{Event, Outcome, Step, Subject};

/// Writes lines.
#[derive(Clone)]
pub(super) struct Voice {
    started: Instant,
    say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Voice {
    /// Writes to standard error if standard output is for the JSON card only, else to standard output.
    pub(super) fn new(json: bool) -> Self {
        let say: Arc<dyn Fn(&str) + Send + Sync> = if json {
            Arc::new(|line| drop(writeln!(std::io::stderr().lock(), "{line}")))
        } else {
            Arc::new(|line| drop(writeln!(std::io::stdout().lock(), "{line}")))
        };
        Self {
            started: Instant::now(),
            say,
        }
    }

    /// Writes a line with the time since the start.
    pub(super) fn line(&self, text: &str) {
        self.line_at(Instant::now(), text);
    }

    fn line_at(&self, at: Instant, text: &str) {
        let seconds = at.duration_since(self.started).as_secs_f64();
        self.plain(&format!("t+{seconds:05.1}  {text}"));
    }

    /// Writes a line as it is.
    pub(super) fn plain(&self, text: &str) {
        (self.say)(text);
    }

    /// A sink for progress lines of slow work.
    pub(super) fn progress(&self) -> Progress {
        let voice = self.clone();
        Progress::to(move |line| {
            // Why: progress lines have a time already, counted from the same moment.
            let text = line.split_once("] ").map_or(line, |(_, text)| text);
            voice.line(text);
        })
    }
}

/// Turns steps into lines.
pub(super) struct View {
    voice: Voice,
    /// When each subject was first seen.
    seen: BTreeMap<Subject, Instant>,
    /// How many jobs run in each cluster.
    running: BTreeMap<String, usize>,
    /// The last message of each subject about a lasting state, without its numbers.
    wordings: BTreeMap<Subject, String>,
}

impl View {
    pub(super) fn new(voice: Voice) -> Self {
        Self {
            voice,
            seen: BTreeMap::new(),
            running: BTreeMap::new(),
            wordings: BTreeMap::new(),
        }
    }

    pub(super) fn show(&mut self, step: &Step) {
        let Step { at, subject, event } = step;
        if self.is_said_already(subject, event) {
            return;
        }
        let first = *self.seen.entry(subject.clone()).or_insert(*at);
        let after = at.duration_since(first).as_secs_f64();
        let text = match event {
            Event::Submitted => "submitted".to_owned(),
            Event::Waiting(reason) => format!("waiting    {reason}"),
            Event::Reserved => "reserved   quota on the manager".to_owned(),
            Event::Started(cluster) => {
                let running = self.running.entry(cluster.clone()).or_default();
                *running += 1;
                format!("running    in {cluster}, {after:.1} s after submit ({running} there)")
            }
            Event::Stopped(cluster) => {
                self.ends_in(cluster);
                format!("stopped    in {cluster}")
            }
            Event::Ended(cluster, outcome) => {
                self.ends_in(cluster);
                format!("{:<10} in {cluster}", word(*outcome))
            }
            Event::Finished(outcome) => format!("finished   {} on the manager", word(*outcome)),
            Event::Gone => "deleted    on the manager".to_owned(),
            Event::Active(true, _) => "active     the manager is connected".to_owned(),
            Event::Active(false, message) => format!("lost       {message}"),
            Event::Capacity(request, reason) => format!("capacity   {reason} for {request}"),
        };
        let name = match subject {
            Subject::Job(namespace, name) => format!("{namespace}/{name}"),
            Subject::Cluster(name) => format!("cluster {name}"),
        };
        self.voice.line_at(*at, &format!("{name:<22} {text}"));
    }

    /// Whether an event repeats the last one but for numbers in its reason, or for other words about the same lasting state.
    fn is_said_already(&mut self, subject: &Subject, event: &Event) -> bool {
        let wording = match event {
            Event::Waiting(reason) => reason.replace(|c: char| c.is_ascii_digit(), ""),
            Event::Active(true, _) => "active".to_owned(),
            Event::Active(false, _) => "lost".to_owned(),
            Event::Submitted
            | Event::Reserved
            | Event::Started(_)
            | Event::Stopped(_)
            | Event::Ended(..)
            | Event::Finished(_)
            | Event::Gone
            | Event::Capacity(..) => return false,
        };
        let last = self.wordings.insert(subject.clone(), wording.clone());
        last.is_some_and(|last| last == wording)
    }

    fn ends_in(&mut self, cluster: &str) {
        if let Some(running) = self.running.get_mut(cluster) {
            *running = running.saturating_sub(1);
        }
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
    }
}
