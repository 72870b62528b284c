//! TLS of the metrics, with a certificate from files that the administrator's tool provides and renews.
//!
//! Invariant: metrics that are to be served over TLS are never served without it. Until the files can be read, every connection fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use roadstead_api::config::Config;
use roadstead_kubeio::failure::with_causes;
use roadstead_kubeio::trouble::Trouble;
use roadstead_serve::shutdown::Tasks;
use roadstead_serve::tls::{CertSlot, Error, FILES_POLL_WAIT, Follower, ServerConfig, server_config};
use tokio_util::sync::CancellationToken;

/// The TLS settings of the metrics listener, and a task that keeps its certificate in step with the files; `None` without
/// `metrics.certDir`.
///
/// *Errors*: the settings under `tls` leave no usable suite or curve.
pub(crate) fn start(
    config: &Config,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Option<Arc<ServerConfig>>, Error> {
    let Some(folder) = &config.roadstead.metrics_cert_dir else {
        return Ok(None);
    };
    let slot = CertSlot::empty();
    let settings = server_config(&config.tls, slot.clone())?;
    let files = Follower::new(folder, slot);
    tasks.spawn("metrics certificate", follow(folder.clone(), files, stop.clone()));
    Ok(Some(settings))
}

/// Reads the files now and whenever they change, until `stop`.
async fn follow(folder: PathBuf, mut files: Follower, stop: CancellationToken) {
    let mut trouble = Trouble::default();
    loop {
        look(&folder, &mut files, &mut trouble).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FILES_POLL_WAIT) => {}
        }
    }
}

async fn look(folder: &Path, files: &mut Follower, trouble: &mut Trouble) {
    let folder = folder.display();
    match files.look().await {
        Ok(is_new) => {
            if trouble.ends() {
                tracing::info!(%folder, "the files of the metrics certificate can be read again");
            }
            if is_new {
                tracing::info!(%folder, "metrics certificate loaded");
            }
        }
        Err(error) => {
            let why = with_causes(&error);
            if trouble.is_news(&why) {
                tracing::warn!(
                    %folder,
                    "the files of the metrics certificate cannot be used: {why}; an earlier certificate is served on, without one \
                     every connection to the metrics fails; the files are looked at again every {} s",
                    FILES_POLL_WAIT.as_secs()
                );
            }
        }
    }
}
