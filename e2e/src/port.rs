//! Free ports on loopback.
//!
//! Why not port 0: kube-apiserver must know its port before it starts and keep it over a restart. The kernel uses the
//! ephemeral range for outgoing connections, so a port from there may be taken when a killed server starts again. These ports
//! are below that range, and each is handed out once per process.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// First port handed out.
const FIRST: u16 = 20_000;
/// Number of ports; Linux's ephemeral range starts at 32 768.
const COUNT: u16 = 12_000;
/// Distance between the first ports of two processes with consecutive ids.
const STRIDE: u32 = 97;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port without a listener, `None` if all are taken. Another process may still take it first: then the caller
/// tries again with the next one.
pub(crate) fn free() -> Option<u16> {
    let start = std::process::id().wrapping_mul(STRIDE) % u32::from(COUNT);
    (0..COUNT).find_map(|_| {
        let offset = u32::from(NEXT.fetch_add(1, Ordering::Relaxed) % COUNT);
        let port = FIRST + u16::try_from((start + offset) % u32::from(COUNT)).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_even_if_still_free() {
        let (first, second) = (free().unwrap(), free().unwrap());
        assert_ne!(first, second);
        assert!(
            [first, second]
                .iter()
                .all(|port| (FIRST..FIRST + COUNT).contains(port))
        );
    }

    #[test]
    fn a_port_in_use_is_passed_over() {
        let held: Vec<_> = (0..4)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, free().unwrap())).unwrap())
            .collect();
        let port = free().unwrap();
        assert!(
            held.iter()
                .all(|listener| listener.local_addr().unwrap().port() != port)
        );
    }
}
