//! An etcd without space: its limit is set below the size of its data, and later raised again.
//!
//! Once etcd has refused a write for lack of space, it refuses all writes until an administrator disarms the alarm, even
//! with a higher limit. This module disarms it over etcd's HTTP gateway, so no other program is needed.

use std::sync::atomic::Ordering;
use std::time::Instant;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::real::Real;
use super::{ETCD, Error, commands};

/// A limit below the size of any database. The last flag of a name counts.
const NO_SPACE: &str = "--quota-backend-bytes=1";
// Wire: etcd's API, `Maintenance.Alarm`.
const ALARM_PATH: &str = "/v3/maintenance/alarm";

impl Real {
    /// Makes etcd refuse writes, like a full one.
    pub(super) async fn fill_storage(&self) -> Result<(), Error> {
        self.full.store(true, Ordering::Relaxed);
        self.restart_storage(Some(NO_SPACE)).await
    }

    /// Gives etcd space again and disarms the alarm. Does nothing if it is not full.
    pub(super) async fn free_storage(&self) -> Result<(), Error> {
        if !self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.restart_storage(None).await?;
        let deadline = Instant::now() + self.start_timeout;
        let calm = || async { self.take_alarms_off().await.ok()?.then_some(()) };
        self.until(deadline, "without an alarm", ETCD, calm).await?;
        self.full.store(false, Ordering::Relaxed);
        self.wait_served(deadline).await
    }

    async fn restart_storage(&self, more: Option<&str>) -> Result<(), Error> {
        self.kill(ETCD);
        let mut spec = self.etcd.clone();
        spec.args.extend(more.map(str::to_owned));
        self.spawn(spec)?;
        let deadline = Instant::now() + self.start_timeout;
        self.wait_storage(deadline).await?;
        self.wait_served(deadline).await
    }

    /// Disarms the alarms. Returns whether there was none.
    async fn take_alarms_off(&self) -> anyhow::Result<bool> {
        let raised = self.ask_storage(&json!({"action": "GET"})).await?;
        let raised = raised["alarms"].as_array().cloned().unwrap_or_default();
        for alarm in &raised {
            let off = json!({"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]});
            self.ask_storage(&off).await?;
        }
        Ok(raised.is_empty())
    }

    async fn ask_storage(&self, question: &Value) -> anyhow::Result<Value> {
        let stream = UnixStream::connect(self.dir.path().join(commands::ETCD_SOCKET)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Why a set: the connection's task ends with this function.
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let request = Request::post(ALARM_PATH)
            .header(http::header::HOST, "etcd")
            .body(Full::new(Bytes::from(question.to_string())))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::ensure!(
            status.is_success(),
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(serde_json::from_slice(&body)?)
    }
}
