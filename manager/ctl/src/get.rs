//! `roadstead get`: jobs, queues and worker clusters of the whole federation, from the objects of the management cluster.
//!
//! It reads only what the caller may read there; no worker is asked.

mod clusters;
pub(crate) mod jobs;
mod news;
mod queues;

use std::io::{self, Write};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{LocalQueue, MultiKueueCluster, Workload};
use roadstead_kinds::TABLE;

use crate::args::look::{Get, ListFormat, What};
use crate::explain;
use crate::failure::{Code, Failure};
use crate::objects::{self, Form, Scope};
use crate::output;
use crate::table::{self, Columns};

/// Prints what was asked for, and every change of it when it is to be watched.
pub async fn run(args: &Get, clock: fn() -> Timestamp) -> Result<(), Failure> {
    let client = objects::connect(&args.place.home).await?;
    let asked = Asked {
        what: args.what,
        name: args.name.clone(),
        selector: args.selector.clone(),
        scope: Scope::of(&args.place, &client),
    };
    if args.watch {
        let sheet = Sheet::new(&asked, args.output);
        return news::run(&client, &asked, sheet, clock).await;
    }
    let objects = asked.read(&client).await?;
    let form = if asked.name.is_some() {
        Form::One
    } else {
        Form::List
    };
    let text = if let Some(text) = objects::print(args.output, &objects, form)? {
        text
    } else {
        if objects.is_empty() {
            output::say(&asked.none());
        }
        Sheet::new(&asked, args.output).rows(&objects, clock())
    };
    if !text.is_empty() {
        let _closed = writeln!(io::stdout().lock(), "{}", text.trim_end());
    }
    Ok(())
}

/// Which objects the user asked for.
#[derive(Clone, Debug)]
struct Asked {
    what: What,
    name: Option<String>,
    selector: Option<String>,
    scope: Scope,
}

impl Asked {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.what {
            What::Jobs => objects::untyped::<Workload>(client, Some(&self.scope)),
            What::Queues => objects::untyped::<LocalQueue>(client, Some(&self.scope)),
            What::Clusters => objects::untyped::<MultiKueueCluster>(client, None),
        }
    }

    async fn read(&self, client: &Client) -> Result<Vec<DynamicObject>, Failure> {
        let api = self.api(client);
        let failed =
            |error: &kube::Error| Failure::request(format!("reading {} failed", self.kinds()), error);
        let Some(name) = &self.name else {
            let all = objects::all(&api, self.selector.as_deref(), |_| true).await;
            return all.map_err(|error| failed(&error));
        };
        let found = match self.what {
            What::Jobs => explain::find(&api, name).await?,
            What::Queues | What::Clusters => {
                let named = api.get_opt(name).await.map_err(|error| failed(&error))?;
                named.into_iter().collect()
            }
        };
        if !found.is_empty() {
            return Ok(found);
        }
        Err(match self.what {
            What::Jobs => {
                let namespace = match &self.scope {
                    Scope::All => "",
                    Scope::One(namespace) => namespace,
                };
                explain::missing(client, TABLE, namespace, name).await
            }
            What::Queues => Failure::new(
                format!("there is no LocalQueue {name} {}", self.scope.words()),
                "the API server knows none of that name there",
                "list them: roadstead get queues -A",
            )
            .code(Code::NotFound),
            What::Clusters => Failure::new(
                format!("cluster {name} is not registered"),
                "there is no MultiKueueCluster of that name",
                "list them: roadstead get clusters",
            )
            .code(Code::NotFound),
        })
    }

    /// Whether the user asked for an object that a watch shows.
    fn means(&self, object: &DynamicObject) -> bool {
        self.name.as_ref().is_none_or(|name| match self.what {
            What::Jobs => explain::means(object, name),
            What::Queues | What::Clusters => object.name_any() == *name,
        })
    }

    const fn kinds(&self) -> &'static str {
        match self.what {
            What::Jobs => "the Workloads",
            What::Queues => "the LocalQueues",
            What::Clusters => "the MultiKueueClusters",
        }
    }

    /// The sentence that is printed instead of an empty table.
    fn none(&self) -> String {
        let with = if self.selector.is_some() {
            " with these labels"
        } else {
            ""
        };
        match self.what {
            What::Jobs => format!("no jobs{with} {}{}", self.scope.words(), self.scope.wider()),
            What::Queues => format!(
                "no LocalQueues{with} {}{}",
                self.scope.words(),
                self.scope.wider()
            ),
            What::Clusters if self.selector.is_some() => format!("no clusters{with}"),
            What::Clusters => {
                "no clusters; add one with: roadstead cluster join NAME --kubeconfig FILE".to_owned()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// The columns that are always shown, without the age.
    cells: Vec<String>,
    /// The columns of `-o wide`.
    wide: Vec<String>,
}

/// The table of one kind; rows can be added to it.
#[derive(Clone, Debug)]
struct Sheet {
    what: What,
    format: ListFormat,
    with_namespace: bool,
    columns: Columns,
    has_header: bool,
}

impl Sheet {
    fn new(asked: &Asked, format: ListFormat) -> Self {
        Self {
            what: asked.what,
            format,
            with_namespace: asked.what != What::Clusters && asked.scope == Scope::All,
            columns: Columns::new(),
            has_header: false,
        }
    }

    /// Names of the columns: always shown, and wide.
    const fn names(&self) -> (&'static [&'static str], &'static [&'static str]) {
        match self.what {
            What::Jobs => (jobs::COLUMNS, jobs::WIDE),
            What::Queues => (queues::COLUMNS, queues::WIDE),
            What::Clusters => (clusters::COLUMNS, clusters::WIDE),
        }
    }

    fn row(&self, object: &DynamicObject, now: Timestamp) -> Result<Row, serde_json::Error> {
        Ok(match self.what {
            What::Jobs => jobs::row(&objects::typed(object)?, now),
            What::Queues => queues::row(&objects::typed(object)?),
            What::Clusters => clusters::row(&objects::typed(object)?),
        })
    }

    /// The cells of an object. An object that cannot be parsed shows only its name, and hides no other object.
    fn cells(&self, object: &DynamicObject, now: Timestamp, age: &str) -> Vec<String> {
        let (names, wide_names) = self.names();
        let row = self.row(object, now).unwrap_or_else(|error| {
            output::say(&format!("note: {} is not understood: {error}", object.name_any()));
            let mut cells = vec![String::new(); names.len()];
            if let Some(first) = cells.first_mut() {
                *first = object.name_any();
            }
            Row {
                cells,
                wide: vec![String::new(); wide_names.len()],
            }
        });
        let mut cells = Vec::new();
        if self.with_namespace {
            cells.push(object.namespace().unwrap_or_default());
        }
        cells.extend(row.cells);
        cells.push(age.to_owned());
        if self.format == ListFormat::Wide {
            cells.extend(row.wide);
        }
        cells
    }

    /// Lines for these cells, under a header when they are the first.
    fn lines(&mut self, cells: Vec<Vec<String>>) -> String {
        if cells.is_empty() {
            return String::new();
        }
        let mut all = Vec::new();
        if !self.has_header {
            self.has_header = true;
            let (names, wide) = self.names();
            let wide = if self.format == ListFormat::Wide {
                wide
            } else {
                &[]
            };
            let namespace: &[&str] = if self.with_namespace { &["NAMESPACE"] } else { &[] };
            let header = namespace.iter().chain(names).chain(&["AGE"]).chain(wide);
            all.push(header.map(|&name| name.to_owned()).collect());
        }
        all.extend(cells);
        self.columns.lines(&all)
    }

    fn rows(&mut self, objects: &[DynamicObject], now: Timestamp) -> String {
        let cells = objects
            .iter()
            .map(|object| self.cells(object, now, &age(object, now)));
        let cells = cells.collect();
        self.lines(cells)
    }
}

fn age(object: &DynamicObject, now: Timestamp) -> String {
    let created = object.creation_timestamp();
    created.map_or_else(String::new, |created| table::age(created.0, now))
}

#[cfg(test)]
mod tests;
