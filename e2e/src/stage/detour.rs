//! A link between our process in a cluster and its own API server, for tests that cut or count requests there.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Error, Stage, account, client_of, system};
use crate::{ControlPlane, Link};

impl Stage {
    /// Connects our process in a cluster to its API server through a link from its next start on. [`Stage::straighten`] removes the
    /// link.
    pub async fn detour(&self, cluster: &str) -> Result<Arc<Link>, Error> {
        let plane = self.plane(cluster)?;
        let link = Arc::new(plane.link().await.map_err(system("starting a link"))?);
        self.give_account(plane, &link.server_url()).await?;
        self.detours().insert(cluster.to_owned(), link.clone());
        Ok(link)
    }

    /// Removes the link of our process in a cluster, and kills the process if it had one. Its next start connects directly.
    pub async fn straighten(&self, cluster: &str) -> Result<(), Error> {
        let link = self.detours().remove(cluster);
        if link.is_some() {
            self.kill(cluster)?;
            let plane = self.plane(cluster)?;
            self.give_account(plane, &plane.server_url()).await?;
        }
        Ok(())
    }

    fn detours(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Link>>> {
        self.detours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the kubeconfig of our process in a cluster, with this URL. Its account must exist.
    pub(super) async fn give_account(&self, plane: &ControlPlane, server_url: &str) -> Result<(), Error> {
        let token = account::token(plane.name(), &client_of(plane)?).await?;
        let path = self.own_kubeconfig(plane.name());
        plane
            .write_kubeconfig_for_token_via(&path, server_url, &token)
            .map_err(Error::Plane)
    }
}
