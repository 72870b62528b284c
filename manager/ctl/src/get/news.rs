//! `--watch`: the list, then a line for every change that shows in it.

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, ResourceExt as _};

use super::{Asked, Sheet, age};
use crate::args::look::{ListFormat, What};
use crate::failure::Failure;
use crate::objects::{self, Form};
use crate::watch;

/// What the age of a deleted object reads.
const DELETED: &str = "deleted";

pub(super) async fn run(
    client: &Client,
    asked: &Asked,
    sheet: Sheet,
    clock: fn() -> Timestamp,
) -> Result<(), Failure> {
    if asked.name.is_some() {
        // Why read first: a name that does not exist must be refused at once.
        asked.read(client).await?;
    }
    let mut config = Config::default();
    if let Some(selector) = &asked.selector {
        config = config.labels(selector);
    }
    if let Some(name) = asked.name.as_ref().filter(|_| asked.what != What::Jobs) {
        config = config.fields(&format!("metadata.name={name}"));
    }
    let mut news = News::new(sheet);
    let changes = watch::changes(asked.api(client), config);
    let lines = |event| news.lines(event, asked, clock());
    watch::follow(changes, asked.kinds(), lines, &mut io::stdout()).await
}

#[derive(Clone, Debug)]
struct Shown {
    object: DynamicObject,
    /// What is compared to find a change: the cells without the age, or the version if whole objects are printed.
    line: Vec<String>,
}

struct News {
    sheet: Sheet,
    shown: BTreeMap<String, Shown>,
    /// The objects that a watch has listed so far, while it starts or restarts.
    beginning: Vec<DynamicObject>,
}

impl News {
    const fn new(sheet: Sheet) -> Self {
        Self {
            sheet,
            shown: BTreeMap::new(),
            beginning: Vec::new(),
        }
    }

    fn lines(
        &mut self,
        event: Event<DynamicObject>,
        asked: &Asked,
        now: Timestamp,
    ) -> Result<String, Failure> {
        let mut told = Vec::new();
        match event {
            Event::Init => self.beginning.clear(),
            Event::InitApply(object) => self.beginning.push(object),
            Event::InitDone => {
                let there = std::mem::take(&mut self.beginning);
                let gone: Vec<String> = { self.shown.keys() }
                    .filter(|uid| !there.iter().any(|object| key(object) == **uid))
                    .cloned()
                    .collect();
                told.extend(gone.iter().filter_map(|uid| self.gone(uid)));
                for object in there {
                    told.extend(self.changed(object, asked, now));
                }
            }
            Event::Apply(object) => told.extend(self.changed(object, asked, now)),
            Event::Delete(object) => {
                told.extend(self.gone(&key(&object)));
            }
        }
        self.render(told, now)
    }

    /// The object, if its line differs from the one that was last shown.
    fn changed(
        &mut self,
        object: DynamicObject,
        asked: &Asked,
        now: Timestamp,
    ) -> Option<(DynamicObject, Age)> {
        if !asked.means(&object) {
            return None;
        }
        let line = match self.sheet.format {
            ListFormat::Table | ListFormat::Wide => self.sheet.cells(&object, now, ""),
            ListFormat::Json | ListFormat::Yaml | ListFormat::Name => {
                vec![object.resource_version().unwrap_or_default()]
            }
        };
        let new = Shown {
            object: object.clone(),
            line,
        };
        let before = self.shown.insert(key(&object), new.clone());
        before
            .is_none_or(|before| before.line != new.line)
            .then_some((object, Age::Counted))
    }

    fn gone(&mut self, uid: &str) -> Option<(DynamicObject, Age)> {
        Some((self.shown.remove(uid)?.object, Age::Deleted))
    }

    fn render(&mut self, told: Vec<(DynamicObject, Age)>, now: Timestamp) -> Result<String, Failure> {
        let mut texts = Vec::new();
        let mut rows = Vec::new();
        for (object, aged) in told {
            let whole = objects::print(self.sheet.format, std::slice::from_ref(&object), Form::One)?;
            match whole {
                Some(text) if self.sheet.format == ListFormat::Yaml => {
                    texts.push(format!("---\n{}", text.trim_end()));
                }
                Some(text) => texts.push(text),
                None => {
                    let age = match aged {
                        Age::Counted => age(&object, now),
                        Age::Deleted => DELETED.to_owned(),
                    };
                    rows.push(self.sheet.cells(&object, now, &age));
                }
            }
        }
        let table = self.sheet.lines(rows);
        texts.extend(Some(table).filter(|table| !table.is_empty()));
        Ok(texts.join("\n"))
    }
}

/// What the column of the age shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Counted,
    Deleted,
}

fn key(object: &DynamicObject) -> String {
    object.uid().unwrap_or_else(|| object.name_any())
}

#[cfg(test)]
mod tests;
