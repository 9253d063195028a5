//! Answers that are made while they are sent, so that a million refs never lie in memory at once.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;

use crate::text;
use crate::wire::pkt::PktError;

/// Bytes gathered before they are sent.
const CHUNK_BYTES: usize = 32 << 10;

/// Chunks that wait for a slow client.
const CHUNKS_WAITING_MAX: usize = 4;

/// Why the making of an answer ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// A line did not fit.
    #[error(transparent)]
    Pkt(#[from] PktError),
    /// The client is gone; nobody needs to know.
    #[error("the client closed the connection")]
    Gone,
    /// The refs cannot be read.
    #[error(transparent)]
    Read(#[from] refstone::ReadError),
}

/// Where an answer is written to.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    pub(crate) buffer: Vec<u8>,
    chunks: mpsc::Sender<io::Result<Bytes>>,
}

impl ChunkWriter {
    /// Sends what is gathered if it is enough. Blocks while the client is slow.
    pub(crate) fn send_full(&mut self) -> Result<(), StreamError> {
        if self.buffer.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), StreamError> {
        let chunk = std::mem::take(&mut self.buffer).into();
        let sent = self.chunks.blocking_send(Ok(chunk));
        sent.map_err(|_| StreamError::Gone)
    }

    /// Cuts the connection: half an answer must not look like a whole one.
    fn abort(&mut self, error: StreamError) {
        if matches!(error, StreamError::Gone) {
            return;
        }
        tracing::error!(problem = %text::chain(&error), "an answer was cut off");
        drop(self.chunks.blocking_send(Err(io::Error::other(error))));
    }
}

/// A body that `produce` writes on a blocking thread.
pub(crate) fn produce<F>(produce: F) -> Body
where
    F: FnOnce(&mut ChunkWriter) -> Result<(), StreamError> + Send + 'static,
{
    let (chunks, receiver) = mpsc::channel(CHUNKS_WAITING_MAX);
    let mut writer = ChunkWriter { buffer: Vec::with_capacity(CHUNK_BYTES), chunks };
    tokio::task::spawn_blocking(move || {
        let produced = produce(&mut writer).and_then(|()| writer.send());
        produced.unwrap_or_else(|error| writer.abort(error));
    });
    Body::from_stream(stream::unfold(receiver, |mut receiver| async {
        let chunk = receiver.recv().await?;
        Some((chunk, receiver))
    }))
}
