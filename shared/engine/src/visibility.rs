//! The visibility API: the pending workloads of a queue, in order, for users with the right to ask.
//!
//! It is an aggregated API group: the API server passes requests on to this process. This server uses the certificate of the
//! webhooks and asks the API server who the user is and what the user may do (`roadstead_serve::delegated`).
//!
//! Invariant: the brain answers one question per turn of its loop and never waits for this server. *Source*: `spec/api.md
//! API-15`.
//!
//! Reading order: `path` (the requested resource), `page` (the requested part of the list), `summary` (the answer), `discovery`
//! and `openapi` (documents for the API server), `reviews` (token and access reviews).

mod discovery;
mod openapi;
mod page;
mod path;
mod reviews;
mod summary;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use kube::Client;
use roadstead_api::config::Config;
use roadstead_api::visibility::GROUP;
use roadstead_core::name::{ClusterQueueName, Key};
use roadstead_core::state::PendingEntry;
use roadstead_serve::delegated::{Asked, Guard, Reply, answering, health};
use roadstead_serve::listen::Listener;
use roadstead_serve::shutdown::Tasks;
use roadstead_serve::tls::{CertSlot, server_config_asking_clients};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::error::Error;
use crate::leader::Leadership;
use page::Page;
use path::{Of, Target};

/// Limit: questions that wait for the brain.
pub(crate) const ASKS_MAX: usize = 8;
/// Limit: how long the brain's answer is waited for.
const ASK_WAIT: Duration = Duration::from_secs(10);
/// Limit: workloads of one queue that are read.
const ENTRIES_MAX: usize = 1_000_000;

/// A question for the brain: which workloads wait in this queue? The answer is `None` when there is no such queue.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) queue: ClusterQueueName,
    /// How many workloads at most.
    pub(crate) limit: usize,
    /// Where the answer goes; a client that has gone is no error.
    pub(crate) answer: oneshot::Sender<Option<Vec<PendingEntry>>>,
}

/// Everything the visibility server needs.
pub(crate) struct Visibility {
    client: Client,
    pub(crate) config: Arc<Config>,
    caches: Caches,
    pub(crate) slot: Arc<CertSlot>,
    asks: mpsc::Sender<Ask>,
}

impl Visibility {
    /// A server for this cluster; it is not started yet.
    pub(crate) fn new(
        client: &Client,
        config: &Arc<Config>,
        caches: &Caches,
        slot: &Arc<CertSlot>,
        asks: mpsc::Sender<Ask>,
    ) -> Self {
        Self {
            client: client.clone(),
            config: config.clone(),
            caches: caches.clone(),
            slot: slot.clone(),
            asks,
        }
    }

    /// Opens the port and serves until `stop`.
    ///
    /// *Errors*: the port cannot be opened, or the TLS settings leave no usable version or cipher suite.
    pub(crate) async fn start(
        self,
        leadership: &Leadership,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let Self {
            client,
            config,
            caches,
            slot,
            asks,
        } = self;
        let tls = server_config_asking_clients(&config.tls, slot).map_err(|source| Error::Tls { source })?;
        let listener = Listener::bind("visibility", &config.visibility.bind())
            .await
            .map_err(|source| Error::Listen { source })?;
        let Some(listener) = listener else {
            return Ok(());
        };
        let guard = Guard::new(reviews::of(&client));
        let answerer = Arc::new(Answerer {
            caches,
            asks,
            leadership: leadership.clone(),
        });
        let pages = answering(move |asked| {
            let answerer = answerer.clone();
            Box::pin(async move { answerer.answer(asked).await })
        });
        let router = health().merge(guard.protect(pages, path::question));
        let serving = listener.serve(router, Some(tls), stop.clone());
        tasks.spawn("visibility", serving);
        let reviews = reviews::follow(client, config, guard, leadership.clone(), stop.clone());
        tasks.spawn("visibility's access reviews", reviews);
        Ok(())
    }
}

/// Why there is no list.
#[derive(Debug, PartialEq, Eq)]
enum Missing {
    Queue,
    /// The brain did not answer in time, or does not run.
    Answer,
    /// This replica does not lead, and has no brain.
    Leader,
}

struct Answerer {
    caches: Caches,
    asks: mpsc::Sender<Ask>,
    leadership: Leadership,
}

impl Answerer {
    async fn answer(&self, asked: Asked) -> Reply {
        if asked.method != Method::GET {
            let message = "the server does not allow this method on the requested resource";
            return Reply::failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        }
        match path::parse(&asked.path) {
            Target::Groups => discovery::groups(&asked.accept),
            Target::Group => discovery::group(),
            Target::Version(version) => discovery::resources(version),
            Target::OpenApiV2 => openapi::v2(&asked.if_none_match),
            Target::OpenApiV3 => openapi::v3(),
            Target::OpenApiV3Of(version) => openapi::v3_of(version, &asked.if_none_match),
            Target::Pending { version, of } => match Page::parse(&asked.query) {
                Ok(page) => self.pending(version, &of, page).await,
                Err(error) => Reply::failure(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string()),
            },
            Target::Unknown => {
                let message = "the server could not find the requested resource";
                Reply::failure(StatusCode::NOT_FOUND, "NotFound", message)
            }
        }
    }

    async fn pending(&self, version: &str, of: &Of, page: Page) -> Reply {
        let listed = match of {
            Of::ClusterQueue(name) => {
                let entries = self.ask(ClusterQueueName::new(name.as_str()), page.end()).await;
                entries.map(|entries| summary::of_cluster_queue(version, &entries, page, &self.caches))
            }
            Of::LocalQueue { namespace, name } => {
                let key = Key::new(namespace.as_str(), name.as_str());
                match self.caches.local_queues.get(&key) {
                    None => Err(Missing::Queue),
                    Some(queue) => {
                        let cluster_queue = ClusterQueueName::new(queue.spec.cluster_queue.as_str());
                        let entries = self.ask(cluster_queue, ENTRIES_MAX).await;
                        entries.map(|entries| {
                            summary::of_local_queue(version, &entries, &key, page, &self.caches)
                        })
                    }
                }
            }
        };
        match listed {
            Ok(summary) => Reply::json(&summary),
            Err(Missing::Queue) => {
                let (kind, name) = of.kind_and_name();
                let message = format!("{kind}.{GROUP} \"{name}\" not found");
                Reply::failure(StatusCode::NOT_FOUND, "NotFound", &message)
            }
            Err(Missing::Leader) => {
                let message = "this replica does not lead, and only the leader knows the order; try again";
                Reply::failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
            }
            Err(Missing::Answer) => {
                let message = "the queues cannot be read yet; try again in a moment";
                Reply::failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
            }
        }
    }

    async fn ask(&self, queue: ClusterQueueName, limit: usize) -> Result<Vec<PendingEntry>, Missing> {
        if !self.leadership.leads() {
            return Err(Missing::Leader);
        }
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            queue,
            limit: limit.min(ENTRIES_MAX),
            answer,
        };
        let asked = async {
            self.asks.send(ask).await.ok()?;
            answered.await.ok()
        };
        match timeout(ASK_WAIT, asked).await {
            Ok(Some(Some(entries))) => Ok(entries),
            Ok(Some(None)) => Err(Missing::Queue),
            Ok(None) | Err(_) => Err(Missing::Answer),
        }
    }
}

#[cfg(test)]
mod tests;
