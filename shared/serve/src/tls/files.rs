//! Certificates from another tool: `tls.crt`, `tls.key` and perhaps `ca.crt` in a folder, read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::bundle::{certificates, certified_key};
use super::{CA_CERT_KEY, CERT_KEY, CertSlot, Error, KEY_KEY};

/// Pause between two checks of the files. Why polling: a mounted Secret changes by a swap of links, which file notifications
/// miss.
pub const FILES_POLL_WAIT: Duration = Duration::from_secs(10);

/// Keeps a [`CertSlot`] in step with a folder.
#[derive(Debug)]
pub struct Follower {
    folder: PathBuf,
    slot: Arc<CertSlot>,
    seen: Option<(Vec<u8>, Vec<u8>)>,
}

impl Follower {
    /// Follows `tls.crt` and `tls.key` in the folder.
    pub fn new(folder: &Path, slot: Arc<CertSlot>) -> Self {
        Self {
            folder: folder.to_owned(),
            slot,
            seen: None,
        }
    }

    /// Checks once; fills the slot when the files are new or changed, and returns whether it did. A pair that cannot be used
    /// leaves the earlier one in place.
    ///
    /// # Errors
    /// When a file cannot be read, or certificate and key do not fit (as in the middle of a change).
    pub async fn look(&mut self) -> Result<bool, Error> {
        let found = (self.read(CERT_KEY).await?, self.read(KEY_KEY).await?);
        if self.seen.as_ref() == Some(&found) {
            return Ok(false);
        }
        let chain = certificates(CERT_KEY, &found.0)?;
        self.slot.fill(certified_key(&chain, KEY_KEY, &found.1)?);
        self.seen = Some(found);
        Ok(true)
    }

    /// The authorities that clients must trust, PEM: `ca.crt` of the folder, as cert-manager writes it. `None` without that file:
    /// then another tool registers them.
    ///
    /// # Errors
    /// When the file is there but cannot be read or holds no certificate.
    pub async fn authorities(&self) -> Result<Option<String>, Error> {
        let text = match self.read(CA_CERT_KEY).await {
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        certificates(CA_CERT_KEY, &text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    async fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.folder.join(name);
        let read: io::Result<Vec<u8>> = tokio::fs::read(&path).await;
        read.map_err(|source| Error::Read { path, source })
    }
}
