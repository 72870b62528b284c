//! The ports of processes on this machine, and whether a process answers there.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Error, POLL, system};
use crate::port;

/// Timeout of one request to `/readyz`, in units of the poll.
const PROBE_POLLS: u32 = 20;
/// Bytes of an answer of `/readyz` that are read.
const ANSWER_BYTES: usize = 512;

/// Ports for health, metrics and webhooks.
pub(super) fn free_ports() -> Result<[u16; 3], Error> {
    Ok([free_port()?, free_port()?, free_port()?])
}

fn free_port() -> Result<u16, Error> {
    let none = || std::io::Error::new(ErrorKind::AddrInUse, "no free port on 127.0.0.1");
    port::free().ok_or_else(none).map_err(system("choosing a port"))
}

/// Whether `/readyz` answers 200.
pub(super) async fn is_ready(address: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .await?;
        let mut answer = vec![0; ANSWER_BYTES];
        let length = stream.read(&mut answer).await?;
        answer.truncate(length);
        std::io::Result::Ok(answer)
    };
    let answer = timeout(POLL * PROBE_POLLS, ask).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|bytes| bytes.get(8..13) == Some(b" 200 ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_200_is_ready() {
        for (answer, ready) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 503 No\r\n\r\n", false),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serve = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
            assert_eq!(is_ready(address).await, ready);
            serve.await.unwrap();
        }
    }
}
