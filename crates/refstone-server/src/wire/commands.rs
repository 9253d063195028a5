//! What a client asks for in a push: the lines before the pack.
//!
//! There is one parser. Whatever judges a command and whatever applies it work on the same parsed
//! value, so no command can be skipped by the first and applied by the second.

use bstr::{BStr, BString, ByteSlice};
use bytes::Bytes;
use refstone::{ObjectFormat, ObjectId};

use super::pkt::{self, Decoder, Packet, PktError};

/// How much a client may ask for in one push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most commands and shallow lines together.
    pub lines_max: usize,
    /// Most bytes before the flush.
    pub bytes_max: usize,
}

impl Default for Limits {
    /// A million lines in 256 MiB: a mirror of the largest known repositories passes in a few
    /// pushes, and a hostile client cannot fill the memory.
    fn default() -> Self {
        Self { lines_max: 1_000_000, bytes_max: 256 << 20 }
    }
}

/// One ref to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Where the client believes the ref is; zero when it believes there is none.
    pub old: ObjectId,
    /// Where it shall be; zero to delete it.
    pub new: ObjectId,
    /// The name as sent: any bytes, not yet judged.
    pub name: BString,
}

impl Command {
    /// Whether the command deletes its ref.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        self.new.is_zero()
    }
}

/// What the client can do, of what it was offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The client waits for a report (of either version: they are the same here).
    pub report_status: bool,
    /// The answer is multiplexed.
    pub side_band: bool,
    /// All or nothing.
    pub atomic: bool,
    /// The client wants no progress.
    pub quiet: bool,
}

/// Everything before the pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushRequest {
    /// Commits whose parents the client does not have.
    pub shallow: Vec<ObjectId>,
    /// The refs to move; empty for a probe.
    pub commands: Vec<Command>,
    /// From the first line that has any.
    pub capabilities: Capabilities,
}

impl PushRequest {
    /// Whether a pack follows: one does unless everything is deleted.
    #[must_use]
    pub fn expects_pack(&self) -> bool {
        !self.commands.iter().all(Command::is_delete)
    }
}

/// Why a request was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The framing is broken.
    #[error(transparent)]
    Pkt(#[from] PktError),
    /// The body ended before the flush that ends the commands.
    #[error("the request ended after {lines} command lines, before the flush that ends them")]
    Eof {
        /// Whole lines read.
        lines: usize,
    },
    /// A line is neither a command nor a shallow line.
    #[error("command line {line}: expected '<old> <new> <ref>' with {format} ids, got '{found}'")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// The object format of the repository.
        format: &'static str,
        /// The line, cut to a readable length.
        found: BString,
    },
    /// The client speaks another object format.
    #[error("unsupported object format '{found}': this repository uses {expected}")]
    ObjectFormat {
        /// What the repository uses.
        expected: &'static str,
        /// What the client announced, or implied by silence.
        found: BString,
    },
    /// The client uses something it was not offered.
    #[error("{what} are not supported by this server; push without them")]
    Unsupported {
        /// The feature, in the plural.
        what: &'static str,
    },
    /// A packet that has no place here.
    #[error("command line {line}: expected a command or a flush, got a delimiter packet")]
    Unexpected {
        /// Counted from 1.
        line: usize,
    },
    /// More than [`Limits`] allow.
    #[error("the push is too large: more than {max} {unit} before the pack; split it")]
    TooMuch {
        /// The limit.
        max: usize,
        /// What it counts.
        unit: &'static str,
    },
}

/// Takes the commands out of a request body that arrives in pieces.
///
/// # Example
///
/// ```
/// use refstone::ObjectFormat;
/// use refstone_server::wire::commands::{Limits, RequestReader};
///
/// let mut reader = RequestReader::new(ObjectFormat::Sha1, Limits::default());
/// let (request, pack) = reader.feed(b"0000PACK").unwrap().expect("ends with a flush");
/// assert!(request.commands.is_empty());
/// assert_eq!(pack, "PACK");
/// ```
#[derive(Debug)]
pub struct RequestReader {
    format: ObjectFormat,
    limits: Limits,
    decoder: Decoder,
    request: PushRequest,
    bytes: usize,
}

impl RequestReader {
    /// A reader for a repository of the given format.
    #[must_use]
    pub fn new(format: ObjectFormat, limits: Limits) -> Self {
        Self {
            format,
            limits,
            decoder: Decoder::default(),
            request: PushRequest::default(),
            bytes: 0,
        }
    }

    /// Reads on. At the flush it returns the request, and the first bytes of the pack if they came
    /// along; the reader is then back at its beginning.
    ///
    /// # Errors
    ///
    /// [`CommandError`] other than [`CommandError::Eof`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<(PushRequest, Bytes)>, CommandError> {
        self.decoder.push(bytes);
        while let Some(packet) = self.decoder.decode()? {
            match packet {
                Packet::Data(line) => self.line(&line)?,
                Packet::Flush => return Ok(Some(self.finish())),
                Packet::Delim | Packet::ResponseEnd => return Err(self.unexpected()),
            }
        }
        Ok(None)
    }

    /// The error for a body that ended before [`feed`](Self::feed) returned a request.
    #[must_use]
    pub fn eof(&self) -> CommandError {
        CommandError::Eof { lines: self.lines() }
    }

    fn finish(&mut self) -> (PushRequest, Bytes) {
        self.bytes = 0;
        let rest = std::mem::take(&mut self.decoder).into_rest();
        (std::mem::take(&mut self.request), rest)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), CommandError> {
        self.count(line)?;
        let (text, capabilities) = split_capabilities(line);
        if let Some(oid) = text.strip_prefix(b"shallow ") {
            let oid = self.oid(oid, text)?;
            self.request.shallow.push(oid);
            return Ok(());
        }
        if self.request.commands.is_empty() {
            self.request.capabilities = self.capabilities(capabilities)?;
        }
        let command = self.command(text)?;
        self.request.commands.push(command);
        Ok(())
    }

    fn count(&mut self, line: &[u8]) -> Result<(), CommandError> {
        self.bytes += line.len();
        if self.lines() >= self.limits.lines_max {
            return Err(too_much(self.limits.lines_max, "lines"));
        }
        if self.bytes > self.limits.bytes_max {
            return Err(too_much(self.limits.bytes_max, "bytes"));
        }
        Ok(())
    }

    fn lines(&self) -> usize {
        self.request.shallow.len() + self.request.commands.len()
    }

    fn command(&self, text: &[u8]) -> Result<Command, CommandError> {
        if text == b"push-cert" {
            let what = "push certificates";
            return Err(CommandError::Unsupported { what });
        }
        let mut fields = text.splitn(3, |&byte| byte == b' ');
        let mut field = || fields.next().unwrap_or_default();
        Ok(Command {
            old: self.oid(field(), text)?,
            new: self.oid(field(), text)?,
            name: Some(field())
                .filter(|name| !name.is_empty())
                .ok_or_else(|| self.malformed(text))?
                .into(),
        })
    }

    fn oid(&self, hex: &[u8], line: &[u8]) -> Result<ObjectId, CommandError> {
        ObjectId::from_hex(hex)
            .ok()
            .filter(|oid| oid.format() == self.format)
            .ok_or_else(|| self.malformed(line))
    }

    /// The object format is checked here, before any id is read: ids of another length would
    /// otherwise be called malformed, which helps nobody.
    fn capabilities(&self, words: &[u8]) -> Result<Capabilities, CommandError> {
        let mut found = Capabilities::default();
        let mut format = BStr::new("sha1");
        for word in words.split(|&byte| byte == b' ') {
            match word {
                b"report-status" | b"report-status-v2" => found.report_status = true,
                b"side-band-64k" => found.side_band = true,
                b"atomic" => found.atomic = true,
                b"quiet" => found.quiet = true,
                b"push-options" => return Err(unsupported("push options")),
                word => format = object_format(word).unwrap_or(format),
            }
        }
        self.check_format(format)?;
        Ok(found)
    }

    fn check_format(&self, found: &BStr) -> Result<(), CommandError> {
        let expected = self.format.name();
        if found == expected {
            return Ok(());
        }
        Err(CommandError::ObjectFormat { expected, found: found.to_owned() })
    }

    fn malformed(&self, line: &[u8]) -> CommandError {
        const SHOWN_BYTES_MAX: usize = 200;
        let shown = &line[..line.len().min(SHOWN_BYTES_MAX)];
        CommandError::Malformed {
            line: self.lines() + 1,
            format: self.format.name(),
            found: shown.escape_ascii().to_string().into(),
        }
    }

    fn unexpected(&self) -> CommandError {
        CommandError::Unexpected { line: self.lines() + 1 }
    }
}

/// Everything behind the first NUL of a line, on every line, is capabilities.
fn split_capabilities(line: &[u8]) -> (&[u8], &[u8]) {
    let (text, capabilities) = line.split_once_str(b"\0").unwrap_or((line, b""));
    (pkt::chomp(text), pkt::chomp(capabilities))
}

fn object_format(word: &[u8]) -> Option<&BStr> {
    word.strip_prefix(b"object-format=").map(BStr::new)
}

fn too_much(max: usize, unit: &'static str) -> CommandError {
    CommandError::TooMuch { max, unit }
}

fn unsupported(what: &'static str) -> CommandError {
    CommandError::Unsupported { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn body(lines: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            pkt::encode(&mut out, &[line]).unwrap();
        }
        out.extend_from_slice(pkt::FLUSH);
        out
    }

    fn reader() -> RequestReader {
        RequestReader::new(ObjectFormat::Sha1, Limits::default())
    }

    fn parse(lines: &[&[u8]]) -> Result<PushRequest, CommandError> {
        let (request, rest) = reader().feed(&body(lines))?.expect("the flush is there");
        assert!(rest.is_empty());
        Ok(request)
    }

    fn oid(hex: &str) -> ObjectId {
        ObjectId::from_hex(hex.as_bytes()).unwrap()
    }

    #[test]
    fn a_push_from_a_shallow_clone_is_understood_at_every_split() {
        let first = format!("{A} {B} refs/heads/main\0 report-status-v2 side-band-64k atomic");
        let delete = [A.as_bytes(), b" ", ZERO.as_bytes(), b" refs/heads/\xff\n"].concat();
        let shallow = format!("shallow {B}");
        let mut stream = body(&[shallow.as_bytes(), first.as_bytes(), &delete]);
        let head = stream.len();
        stream.extend_from_slice(b"PACK");
        for split in 0..stream.len() {
            let mut reader = reader();
            let (request, rest) = match reader.feed(&stream[..split]).unwrap() {
                Some(done) => done,
                None => reader.feed(&stream[split..]).unwrap().unwrap(),
            };
            assert_eq!(request.shallow, [oid(B)]);
            assert_eq!(request.commands[0].name, "refs/heads/main");
            assert_eq!(request.commands[0].old, oid(A));
            assert_eq!(request.commands[1].name, b"refs/heads/\xff".as_bstr());
            assert!(request.commands[1].is_delete());
            assert!(request.expects_pack());
            assert!(request.capabilities.atomic && request.capabilities.report_status);
            assert!(request.capabilities.side_band && !request.capabilities.quiet);
            assert_eq!(rest, stream[head..].to_vec()[..rest.len()]);
        }
    }

    #[test]
    fn deletes_alone_expect_no_pack() {
        let line = format!("{A} {ZERO} refs/heads/x\0report-status");
        assert!(!parse(&[line.as_bytes()]).unwrap().expects_pack());
    }

    #[test]
    fn names_may_contain_spaces_so_that_policy_sees_what_would_be_applied() {
        let line = format!("{ZERO} {A} refs/heads/a b\0report-status");
        assert_eq!(parse(&[line.as_bytes()]).unwrap().commands[0].name, "refs/heads/a b");
    }

    #[test]
    fn malformed_lines_are_named_with_their_number() {
        let good = format!("{ZERO} {A} refs/heads/x\0report-status");
        for bad in [
            "".to_owned(),
            "hello".to_owned(),
            format!("{A} {B}"),
            format!("{A} {B} "),
            format!("{A}  {B} refs/heads/x"),
            format!("{A} {}g refs/heads/x", &B[..39]),
            format!("shallow {}", &B[..39]),
            format!("{A}{} {B}{} refs/heads/x", &A[..24], &B[..24]),
        ] {
            let error = parse(&[good.as_bytes(), bad.as_bytes()]).unwrap_err();
            let CommandError::Malformed { line: 2, .. } = error else {
                panic!("'{bad}' gave {error:?}");
            };
        }
    }

    #[test]
    fn another_object_format_is_called_by_its_name() {
        let line = format!("{A} {B} refs/heads/x\0report-status object-format=sha256");
        let error = parse(&[line.as_bytes()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unsupported object format 'sha256': this repository uses sha1"
        );
        let mut sha256 = RequestReader::new(ObjectFormat::Sha256, Limits::default());
        let silent = format!("{A} {B} refs/heads/x\0report-status");
        let error = sha256.feed(&body(&[silent.as_bytes()])).unwrap_err();
        assert!(matches!(error, CommandError::ObjectFormat { .. }), "{error:?}");
    }

    #[test]
    fn features_that_were_not_offered_are_refused_not_dropped() {
        let options = format!("{ZERO} {A} refs/heads/x\0report-status push-options");
        for (line, what) in
            [(options.as_str(), "push options"), ("push-cert\0report-status", "push certificates")]
        {
            let error = parse(&[line.as_bytes()]).unwrap_err();
            assert_eq!(error, CommandError::Unsupported { what });
        }
    }

    #[test]
    fn a_delimiter_is_no_end() {
        let error = reader().feed(b"0001").unwrap_err();
        assert_eq!(error, CommandError::Unexpected { line: 1 });
    }

    #[test]
    fn both_limits_hold() {
        let line = format!("{ZERO} {A} refs/heads/x");
        let limits = Limits { lines_max: 2, bytes_max: 1000 };
        let feed = |limits, lines: usize| {
            RequestReader::new(ObjectFormat::Sha1, limits)
                .feed(&body(&vec![line.as_bytes(); lines]))
        };
        assert!(feed(limits, 2).unwrap().is_some());
        assert_eq!(feed(limits, 3).unwrap_err(), too_much(2, "lines"));
        let limits = Limits { lines_max: 10, bytes_max: 2 * line.len() };
        assert!(feed(limits, 2).unwrap().is_some());
        assert_eq!(feed(limits, 3).unwrap_err(), too_much(2 * line.len(), "bytes"));
    }

    #[test]
    fn an_early_end_tells_how_far_it_came() {
        let mut reader = reader();
        let line = format!("{ZERO} {A} refs/heads/x");
        let whole = body(&[line.as_bytes()]);
        assert!(reader.feed(&whole[..whole.len() - 4]).unwrap().is_none());
        assert_eq!(reader.eof(), CommandError::Eof { lines: 1 });
    }
}
