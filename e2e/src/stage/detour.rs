//! Our process in a cluster and its own API server, with a cable between them for tests that cut or count there too.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Error, Stage, account, client_of, system};
use crate::{ControlPlane, Link};

impl Stage {
    /// Leads our process in a cluster to its API server through a cable from its next start on. [`Stage::straighten`] takes it out
    /// again.
    pub async fn detour(&self, cluster: &str) -> Result<Arc<Link>, Error> {
        let plane = self.plane(cluster)?;
        let link = Arc::new(plane.link().await.map_err(system("starting a link"))?);
        self.give_account(plane, &link.server_url()).await?;
        self.detours().insert(cluster.to_owned(), link.clone());
        Ok(link)
    }

    /// Kills our process in a cluster if its way is a detour, and lets it go straight from its next start on.
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

    /// Writes the kubeconfig of our process in a cluster, which leads it there. Its account must be there.
    pub(super) async fn give_account(&self, plane: &ControlPlane, server_url: &str) -> Result<(), Error> {
        let token = account::token(plane.name(), &client_of(plane)?).await?;
        let path = self.own_kubeconfig(plane.name());
        plane
            .write_kubeconfig_for_token_via(&path, server_url, &token)
            .map_err(Error::Plane)
    }
}
