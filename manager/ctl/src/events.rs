//! `roadstead events`: what has happened to jobs, in order of time, whichever cluster it happened on.
//!
//! The manager writes down on the job and its Workload what happens to them on the workers, so only Events of the management
//! cluster are read, with the caller's own rights.

use std::io::{self, Write};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Config};
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_kinds::TABLE;
use serde_json::Error;

use crate::args::look::{Events, ListFormat};
use crate::event::{self, About, COLUMNS, WIDE, cells, time};
use crate::explain;
use crate::failure::Failure;
use crate::objects::{self, Form, Scope};
use crate::output;
use crate::table::Columns;
use crate::watch;

/// Prints the events, and every new one when they are to be watched.
pub async fn run(args: &Events, clock: fn() -> Timestamp) -> Result<(), Failure> {
    let client = objects::connect(&args.place.home).await?;
    let scope = Scope::of(&args.place, &client);
    let about = match (&args.name, &scope) {
        (Some(name), Scope::One(namespace)) => About::Only(of_job(&client, namespace, name).await?),
        (Some(_), Scope::All) | (None, _) => About::AnyJob,
    };
    let api: Api<Event> = match &scope {
        Scope::All => Api::all(client),
        Scope::One(namespace) => Api::namespaced(client, namespace),
    };
    let mut sheet = Sheet {
        format: args.output,
        with_namespace: scope == Scope::All,
        columns: Columns::new(),
        has_header: false,
    };
    if args.watch {
        let mut beginning = Vec::new();
        let lines = |event| match new(event, &mut beginning) {
            events if events.is_empty() => Ok(String::new()),
            events => sheet.text(in_order(events, &about), Form::One, clock()),
        };
        return watch::follow(
            watch::changes(api, Config::default()),
            "the Events",
            lines,
            &mut io::stdout(),
        )
        .await;
    }
    let found = read(&api, &about).await?;
    if found.is_empty() {
        let of = args
            .name
            .as_ref()
            .map_or_else(|| "of jobs".to_owned(), |name| format!("of {name}"));
        output::say(&format!(
            "no events {of} {}; the API server keeps them for an hour",
            scope.words()
        ));
    }
    let text = sheet.text(found, Form::List, clock())?;
    if !text.is_empty() {
        let _closed = writeln!(io::stdout().lock(), "{}", text.trim_end());
    }
    Ok(())
}

async fn of_job(client: &Client, namespace: &str, name: &str) -> Result<Vec<event::Target>, Failure> {
    let workloads: Vec<Workload> = explain::find(&Api::namespaced(client.clone(), namespace), name).await?;
    if workloads.is_empty() {
        // Why: that a Workload cannot be made is said by an Event on the job only.
        if let Some((kind, job)) = explain::queued(client, TABLE, namespace, name).await {
            return Ok(vec![event::target(kind, &job)]);
        }
        return Err(explain::missing(client, TABLE, namespace, name).await);
    }
    Ok(workloads.iter().flat_map(event::targets).collect())
}

/// Reads the events that `about` selects, the oldest first.
pub(crate) async fn read(api: &Api<Event>, about: &About) -> Result<Vec<Event>, Failure> {
    let found = objects::all(api, None, |event| about.means(event)).await;
    let found = found.map_err(|error| Failure::request("reading the Events failed", &error))?;
    Ok(in_order(found, about))
}

fn in_order(mut events: Vec<Event>, about: &About) -> Vec<Event> {
    events.retain(|event| about.means(event));
    events.sort_by_key(time);
    events
}

/// The Events that a watch reports as new or changed. The deletion of an Event is not reported.
fn new(event: watcher::Event<Event>, beginning: &mut Vec<Event>) -> Vec<Event> {
    match event {
        watcher::Event::Init => beginning.clear(),
        watcher::Event::InitApply(event) => beginning.push(event),
        watcher::Event::InitDone => return std::mem::take(beginning),
        watcher::Event::Apply(event) => return vec![event],
        watcher::Event::Delete(_) => {}
    }
    Vec::new()
}

struct Sheet {
    format: ListFormat,
    with_namespace: bool,
    columns: Columns,
    has_header: bool,
}

impl Sheet {
    fn text(&mut self, events: Vec<Event>, form: Form, now: Timestamp) -> Result<String, Failure> {
        if !matches!(self.format, ListFormat::Table | ListFormat::Wide) {
            return self.objects(&events, form);
        }
        if events.is_empty() {
            return Ok(String::new());
        }
        let mut rows = Vec::new();
        let wide = self.format == ListFormat::Wide;
        if !self.has_header {
            self.has_header = true;
            let namespace: &[&str] = if self.with_namespace { &["NAMESPACE"] } else { &[] };
            let header = namespace
                .iter()
                .chain(COLUMNS)
                .chain(if wide { WIDE } else { &[] });
            rows.push(header.map(|&name| name.to_owned()).collect());
        }
        for event in events {
            let mut row = Vec::new();
            if self.with_namespace {
                row.push(event.metadata.namespace.clone().unwrap_or_default());
            }
            row.extend(cells(&event, now));
            if wide {
                row.extend(event::wide(&event));
            }
            rows.push(row);
        }
        Ok(self.columns.lines(&rows))
    }

    fn objects(&self, events: &[Event], form: Form) -> Result<String, Failure> {
        let object = |event: &Event| serde_json::from_value::<DynamicObject>(serde_json::to_value(event)?);
        let objects: Result<Vec<DynamicObject>, Error> = events.iter().map(object).collect();
        let objects = objects.map_err(|error| {
            Failure::new(
                "the events cannot be printed",
                error.to_string(),
                "try another --output",
            )
        })?;
        match form {
            Form::List => Ok(objects::print(self.format, &objects, form)?.unwrap_or_default()),
            Form::One => {
                let texts = objects.iter().map(|object| {
                    let text = objects::print(self.format, std::slice::from_ref(object), form)?;
                    let text = text.unwrap_or_default();
                    Ok(if self.format == ListFormat::Yaml {
                        format!("---\n{}", text.trim_end())
                    } else {
                        text
                    })
                });
                Ok(texts.collect::<Result<Vec<_>, Failure>>()?.join("\n"))
            }
        }
    }
}
