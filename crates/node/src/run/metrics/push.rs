//! Pushes metrics to a Prometheus push gateway, for nodes that Prometheus can't reach.

use eyre::{Result, eyre};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

/// How long one push may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most of a response that is read: its first line has the status.
const RESPONSE_BYTES: usize = 4096;

/// Where metrics are pushed to.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) job: String,
    pub(crate) interval: Duration,
}

impl Gateway {
    /// Pushes the output of `render` every interval until `stop` is true, and once more then. Logs the first
    /// failure after a success, and the first success after a failure.
    pub(super) async fn push(
        self,
        render: Arc<dyn Fn() -> String + Send + Sync>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut last_succeeded = None;
        let mut is_over = false;
        while !is_over {
            is_over = timeout(self.interval, stop.wait_for(|stop| *stop))
                .await
                .is_ok();
            let text = render();
            let pushed = timeout(TIMEOUT, self.send(&text)).await;
            let pushed = pushed.unwrap_or_else(|_| Err(eyre!("no answer in {TIMEOUT:?}")));
            let succeeded = pushed.is_ok();
            if last_succeeded.replace(succeeded) == Some(succeeded) {
                continue;
            }
            let (host, port) = (&self.host, self.port);
            match pushed {
                Ok(()) => info!("Metrics are pushed to {host}:{port}"),
                Err(error) => warn!("Metrics can't be pushed to {host}:{port}: {error:#}"),
            }
        }
    }

    async fn send(&self, text: &str) -> Result<()> {
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let head = format!(
            "PUT /metrics/job/{} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: text/plain; \
             version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            escaped(&self.job),
            self.host,
            self.port,
            text.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut response = Vec::new();
        while response.len() < RESPONSE_BYTES && !response.contains(&b'\n') {
            if stream.read_buf(&mut response).await? == 0 {
                break;
            }
        }
        let response = String::from_utf8_lossy(&response);
        let line = response.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some(code) if code.starts_with('2') => Ok(()),
            _ => Err(eyre!("the gateway answers '{line}'")),
        }
    }
}

/// `text` percent-encoded as a segment of a path.
fn escaped(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                path.push(char::from(byte));
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// The request that a gateway answering `status` gets, and the result of the push.
    async fn sent(job: &str, status: &str) -> (String, Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = Gateway {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            job: job.to_owned(),
            interval: Duration::from_secs(1),
        };
        let pushing = tokio::spawn(async move { gateway.send("figure 1\n").await });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"figure 1\n") {
            stream.read_buf(&mut text).await.unwrap();
        }
        stream.write_all(status.as_bytes()).await.unwrap();
        drop(stream);
        (String::from_utf8(text).unwrap(), pushing.await.unwrap())
    }

    #[tokio::test]
    async fn metrics_are_put_under_the_path_of_their_job() {
        let (text, pushed) = sent("my node/1", "HTTP/1.1 202 Accepted\r\n\r\n").await;
        assert!(
            text.starts_with("PUT /metrics/job/my%20node%2F1 HTTP/1.1\r\n"),
            "{text}"
        );
        assert!(text.contains("Content-Length: 9\r\n"), "{text}");
        pushed.unwrap();
        let (_, refused) = sent("x", "HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("400 Bad Request"), "{refused}");
    }
}
