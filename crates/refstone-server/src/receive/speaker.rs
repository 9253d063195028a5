//! The answer to a push: text for the user's terminal while the server works, then the report.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::wire::commands::Capabilities;
use crate::wire::pkt::{self, PktError};
use crate::wire::report::{self, RefReport};
use crate::wire::sideband::{self, Band};

/// Most text for the terminal that one push may produce, in bytes. It waits in memory until the
/// request has been read, so there must be a limit.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// How long the server may be silent, as in git.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Where a push is answered. A clone speaks into the same answer.
#[derive(Debug, Clone)]
pub(crate) struct Speaker {
    capabilities: Capabilities,
    answer: mpsc::UnboundedSender<Bytes>,
    text_bytes_left: Arc<AtomicUsize>,
}

/// The other end of a [`Speaker`].
#[derive(Debug)]
pub(crate) struct Answer {
    capabilities: Capabilities,
    answer: mpsc::UnboundedReceiver<Bytes>,
}

impl Speaker {
    /// A speaker for a client that can do what it said.
    pub(crate) fn new(capabilities: Capabilities) -> (Self, Answer) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let speaker = Self {
            capabilities,
            answer: sender,
            text_bytes_left: Arc::new(AtomicUsize::new(TEXT_BYTES_MAX)),
        };
        let answer = Answer { capabilities, answer: receiver };
        (speaker, answer)
    }

    /// Whether the user wants to watch.
    pub(crate) fn shows_progress(&self) -> bool {
        self.capabilities.side_band && !self.capabilities.quiet
    }

    /// Prints `error: <text>` on the user's terminal.
    pub(crate) fn error(&self, text: fmt::Arguments<'_>) {
        self.text(format!("error: {text}\n").as_bytes());
    }

    /// Prints `warning: <text>` on the user's terminal.
    pub(crate) fn warning(&self, text: fmt::Arguments<'_>) {
        self.text(format!("warning: {text}\n").as_bytes());
    }

    /// Relays what a child prints, until it closes its end.
    pub(crate) async fn relay(self, mut stderr: impl AsyncRead + Unpin) {
        let mut buffer = [0; 4 << 10];
        while let Ok(bytes @ 1..) = stderr.read(&mut buffer).await {
            self.text(&buffer[..bytes]);
        }
    }

    /// Ends the answer with the report, if the client waits for one.
    pub(crate) fn report<'a>(
        &self,
        unpack: Result<(), &str>,
        refs: impl Iterator<Item = RefReport<'a>>,
    ) {
        let mut out = Vec::new();
        if self.capabilities.report_status {
            let encoded = self.encode_report(&mut out, unpack, refs);
            encoded.unwrap_or_else(|error| tracing::error!(%error, "a report was cut off"));
        }
        if self.capabilities.side_band {
            out.extend_from_slice(pkt::FLUSH);
        }
        self.send(out);
    }

    fn encode_report<'a>(
        &self,
        out: &mut Vec<u8>,
        unpack: Result<(), &str>,
        refs: impl Iterator<Item = RefReport<'a>>,
    ) -> Result<(), PktError> {
        let mut report = Vec::new();
        report::encode(&mut report, unpack, refs)?;
        if self.capabilities.side_band {
            sideband::encode(out, Band::Data, &report);
        } else {
            out.append(&mut report);
        }
        Ok(())
    }

    fn text(&self, text: &[u8]) {
        if !self.capabilities.side_band {
            return;
        }
        let left = self.take_text_bytes(text.len());
        let mut out = Vec::new();
        sideband::encode(&mut out, Band::Progress, &text[..left]);
        if left < text.len() && left > 0 {
            let notice = b"\nwarning: more output was dropped\n";
            sideband::encode(&mut out, Band::Progress, notice);
        }
        self.send(out);
    }

    fn take_text_bytes(&self, wanted: usize) -> usize {
        let take = |left: usize| Some(left.saturating_sub(wanted));
        let counter = &self.text_bytes_left;
        let before = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.map_or(0, |before| before.min(wanted))
    }

    /// A client that is gone is no reason to stop: the push is decided without it.
    fn send(&self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            drop(self.answer.send(bytes.into()));
        }
    }
}

impl Answer {
    /// The answer as it is spoken, with keepalives while nothing is.
    pub(crate) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut answer| async {
            let bytes = answer.next().await?;
            Some((Ok::<_, std::convert::Infallible>(bytes), answer))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if !self.capabilities.side_band {
            return self.answer.recv().await;
        }
        match tokio::time::timeout(KEEPALIVE, self.answer.recv()).await {
            Ok(bytes) => bytes,
            Err(_) => Some(Bytes::from_static(sideband::KEEPALIVE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side_band() -> Capabilities {
        Capabilities { side_band: true, report_status: true, ..Capabilities::default() }
    }

    async fn said(mut answer: Answer) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = answer.answer.recv().await {
            all.extend_from_slice(&bytes);
        }
        all
    }

    #[tokio::test]
    async fn a_client_without_side_band_gets_the_bare_report() {
        let capabilities = Capabilities { report_status: true, ..Capabilities::default() };
        let (speaker, answer) = Speaker::new(capabilities);
        speaker.error(format_args!("unheard"));
        speaker.report(Ok(()), std::iter::empty());
        drop(speaker);
        assert_eq!(said(answer).await, b"000eunpack ok\n0000");
    }

    #[tokio::test]
    async fn text_comes_before_the_report_and_a_flush_ends_both() {
        let (speaker, answer) = Speaker::new(side_band());
        speaker.warning(format_args!("careful"));
        speaker.report(Ok(()), std::iter::empty());
        drop(speaker);
        let expected = b"0016\x02warning: careful\n0017\x01000eunpack ok\n00000000";
        assert_eq!(said(answer).await, expected);
    }

    #[tokio::test]
    async fn endless_text_is_cut_off_once_and_says_so() {
        let (speaker, answer) = Speaker::new(side_band());
        let text = vec![b'x'; TEXT_BYTES_MAX - 1];
        speaker.text(&text);
        speaker.text(b"yyy");
        speaker.text(b"zzz");
        drop(speaker);
        let said = String::from_utf8(said(answer).await).unwrap();
        assert_eq!(said.matches('y').count(), 1);
        assert_eq!(said.matches("more output was dropped").count(), 1);
        assert!(!said.contains('z'));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_by_keepalives() {
        let (_speaker, mut answer) = Speaker::new(side_band());
        assert_eq!(answer.next().await.unwrap(), sideband::KEEPALIVE.as_slice());
        let (_speaker, mut answer) = Speaker::new(Capabilities::default());
        let waited = tokio::time::timeout(KEEPALIVE * 10, answer.next()).await;
        assert!(waited.is_err(), "a keepalive would break a bare report");
    }
}
