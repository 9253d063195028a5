//! Protocol version 2, as far as references go: the capability advertisement, the head of a
//! command request, and `ls-refs`.

use bstr::{BStr, BString};
use bytes::Bytes;
use refstone::{ObjectFormat, ObjectId};

use super::pkt::{self, Decoder, Packet, PktError};

/// Most bytes of a request head: a command and a few capabilities.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// From this many prefixes on they are not used at all, as in git: they are only a filter, and
/// matching against them would cost more than the refs they hide.
const PREFIXES_MAX: usize = 65_536;

/// Appends what the server can do.
///
/// `ref-in-want` is absent: it would let a fetch name refs, and stock `upload-pack`, which answers
/// fetches, would look for them in its own store.
///
/// # Errors
///
/// [`PktError::TooLong`] for an agent of absurd length.
///
/// # Example
///
/// ```
/// use refstone::ObjectFormat;
/// use refstone_server::wire::v2;
///
/// let mut out = Vec::new();
/// v2::capability_advertisement(&mut out, ObjectFormat::Sha1, "refstone/1").unwrap();
/// assert!(out.starts_with(b"000eversion 2\n0015agent=refstone/1\n"));
/// assert!(out.ends_with(b"0017object-format=sha1\n0000"));
/// ```
pub fn capability_advertisement(
    out: &mut Vec<u8>,
    format: ObjectFormat,
    agent: &str,
) -> Result<(), PktError> {
    pkt::encode(out, &[b"version 2\n"])?;
    pkt::encode(out, &[b"agent=", agent.as_bytes(), b"\n"])?;
    pkt::encode(out, &[b"ls-refs=unborn\n"])?;
    pkt::encode(out, &[b"fetch=shallow wait-for-done filter\n"])?;
    pkt::encode(out, &[b"object-format=", format.name().as_bytes(), b"\n"])?;
    out.extend_from_slice(pkt::FLUSH);
    Ok(())
}

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// List references.
    LsRefs,
    /// Negotiate and send a pack.
    Fetch,
}

/// The lines of a request before its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The command, or `None` for the empty request with which a client says goodbye.
    pub verb: Option<Verb>,
}

/// Why a request was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The framing is broken.
    #[error(transparent)]
    Pkt(#[from] PktError),
    /// The body ended before the flush.
    #[error("the request ended before the flush that ends it")]
    Eof,
    /// No `command=` line.
    #[error("the request names no command: expected 'command=ls-refs' or 'command=fetch'")]
    NoCommand,
    /// A command that was not offered, or a second one.
    #[error("unexpected command '{found}': expected one of 'ls-refs' and 'fetch'")]
    Command {
        /// The command, cut to a readable length.
        found: BString,
    },
    /// The client speaks another object format.
    #[error("mismatched object format: server {expected}; client {found}")]
    ObjectFormat {
        /// What the repository uses.
        expected: &'static str,
        /// What the client announced, or implied by silence.
        found: BString,
    },
    /// The head does not end.
    #[error("the head of the request exceeds {HEAD_BYTES_MAX} bytes")]
    TooLong,
    /// An argument that `ls-refs` does not have.
    #[error("unexpected line: '{found}' in the arguments of ls-refs")]
    Argument {
        /// The line, cut to a readable length.
        found: BString,
    },
    /// A packet that has no place here.
    #[error("expected flush after ls-refs arguments, got a delimiter packet")]
    Unexpected,
}

/// Reads the head of a request that arrives in pieces, and keeps every byte of it: a fetch is
/// handed on unchanged.
#[derive(Debug)]
pub struct HeadReader {
    format: ObjectFormat,
    decoder: Decoder,
    raw: Vec<u8>,
    verb: Option<Verb>,
    found_format: BString,
    head_bytes: usize,
}

impl HeadReader {
    /// A reader for a repository of the given format.
    #[must_use]
    pub fn new(format: ObjectFormat) -> Self {
        Self {
            format,
            decoder: Decoder::default(),
            raw: Vec::new(),
            verb: None,
            found_format: "sha1".into(),
            head_bytes: 0,
        }
    }

    /// Reads on; returns the head when its end has come.
    ///
    /// # Errors
    ///
    /// [`RequestError`], also when the client's object format is not the repository's.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Head>, RequestError> {
        self.raw.extend_from_slice(bytes);
        self.decoder.push(bytes);
        while let Some(packet) = self.decoder.decode()? {
            match packet {
                Packet::Data(line) => self.line(&line)?,
                Packet::Flush | Packet::Delim | Packet::ResponseEnd => {
                    return self.finish().map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Every byte fed so far: the head and what came behind it.
    #[must_use]
    pub fn into_raw(self) -> Bytes {
        self.raw.into()
    }

    /// Unknown capabilities are ignored: they change nothing about references, and `upload-pack`
    /// judges those of a fetch itself.
    fn line(&mut self, line: &[u8]) -> Result<(), RequestError> {
        self.head_bytes += line.len() + pkt::DELIM.len();
        if self.head_bytes > HEAD_BYTES_MAX {
            return Err(RequestError::TooLong);
        }
        let line = pkt::chomp(line);
        if let Some(command) = line.strip_prefix(b"command=") {
            self.verb = Some(self.command(command)?);
        } else if let Some(format) = line.strip_prefix(b"object-format=") {
            self.found_format = format.into();
        }
        Ok(())
    }

    fn command(&self, name: &[u8]) -> Result<Verb, RequestError> {
        match name {
            b"ls-refs" if self.verb.is_none() => Ok(Verb::LsRefs),
            b"fetch" if self.verb.is_none() => Ok(Verb::Fetch),
            other => Err(RequestError::Command { found: readable(other) }),
        }
    }

    fn finish(&self) -> Result<Head, RequestError> {
        if self.head_bytes == 0 {
            return Ok(Head { verb: None });
        }
        let verb = self.verb.clone().ok_or(RequestError::NoCommand)?;
        let expected = self.format.name();
        if self.found_format != expected {
            return Err(RequestError::ObjectFormat {
                expected,
                found: readable(&self.found_format),
            });
        }
        Ok(Head { verb: Some(verb) })
    }
}

/// The arguments of `ls-refs`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LsRefs {
    /// Tell what annotated tags point to.
    pub peel: bool,
    /// Tell where symbolic refs point.
    pub symrefs: bool,
    /// Tell where `HEAD` points when that branch does not exist.
    pub unborn: bool,
    /// Only names that begin with one of these; all names when empty.
    pub prefixes: Vec<BString>,
}

impl LsRefs {
    /// Reads the arguments from a whole request, head included.
    ///
    /// # Errors
    ///
    /// [`RequestError`].
    pub fn parse(request: &[u8]) -> Result<Self, RequestError> {
        let mut decoder = Decoder::default();
        decoder.push(request);
        let mut found = Self::default();
        if skip_head(&mut decoder)? {
            found.arguments(&mut decoder)?;
        }
        if found.prefixes.len() >= PREFIXES_MAX {
            found.prefixes.clear();
        }
        Ok(found)
    }

    /// Whether a ref is asked for.
    #[must_use]
    pub fn wants(&self, name: &[u8]) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|p| name.starts_with(p))
    }

    /// The prefixes to scan: sorted, none inside another, so that scanning them one after the
    /// other yields each ref once and in order.
    #[must_use]
    pub fn scans(&self) -> Vec<&BStr> {
        if self.prefixes.is_empty() {
            return vec![BStr::new("")];
        }
        let mut scans: Vec<&BStr> = self.prefixes.iter().map(AsRef::as_ref).collect();
        scans.sort_unstable();
        scans.dedup_by(|next, kept| next.starts_with(kept));
        scans
    }

    fn arguments(&mut self, decoder: &mut Decoder) -> Result<(), RequestError> {
        loop {
            match decoder.decode()?.ok_or(RequestError::Eof)? {
                Packet::Data(line) => self.argument(pkt::chomp(&line))?,
                Packet::Flush => return Ok(()),
                Packet::Delim | Packet::ResponseEnd => return Err(RequestError::Unexpected),
            }
        }
    }

    fn argument(&mut self, line: &[u8]) -> Result<(), RequestError> {
        match line {
            b"peel" => self.peel = true,
            b"symrefs" => self.symrefs = true,
            b"unborn" => self.unborn = true,
            line => self.prefix(line)?,
        }
        Ok(())
    }

    fn prefix(&mut self, line: &[u8]) -> Result<(), RequestError> {
        let prefix = line.strip_prefix(b"ref-prefix ");
        let prefix = prefix.ok_or_else(|| RequestError::Argument { found: readable(line) })?;
        if self.prefixes.len() < PREFIXES_MAX {
            self.prefixes.push(prefix.into());
        }
        Ok(())
    }
}

/// Returns whether arguments follow.
fn skip_head(decoder: &mut Decoder) -> Result<bool, RequestError> {
    loop {
        match decoder.decode()?.ok_or(RequestError::Eof)? {
            Packet::Data(_) => {}
            Packet::Delim => return Ok(true),
            Packet::Flush | Packet::ResponseEnd => return Ok(false),
        }
    }
}

/// One line of the answer to `ls-refs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefLine<'a> {
    /// Where the ref points; `None` for an unborn `HEAD`.
    pub oid: Option<ObjectId>,
    /// The name.
    pub name: &'a [u8],
    /// For a symbolic ref, the name it ends at.
    pub symref_target: Option<&'a [u8]>,
    /// For an annotated tag, what it points to in the end.
    pub peeled: Option<ObjectId>,
}

impl RefLine<'_> {
    /// Appends the line.
    ///
    /// # Errors
    ///
    /// [`PktError::TooLong`] when the names do not fit in a packet.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), PktError> {
        let oid = self.oid.map_or("unborn".to_owned(), |oid| oid.to_hex().to_string());
        let peeled = self.peeled.map(|oid| oid.to_hex().to_string());
        let (target_key, target) = attribute(b" symref-target:", self.symref_target);
        let (peeled_key, peeled) = attribute(b" peeled:", peeled.as_deref().map(str::as_bytes));
        let line = [oid.as_bytes(), b" ", self.name, target_key, target, peeled_key, peeled, b"\n"];
        pkt::encode(out, &line)
    }
}

fn attribute<'a>(key: &'static [u8], value: Option<&'a [u8]>) -> (&'a [u8], &'a [u8]) {
    value.map_or((b"".as_slice(), b"".as_slice()), |value| (key, value))
}

fn readable(text: &[u8]) -> BString {
    const SHOWN_BYTES_MAX: usize = 200;
    let shown = &text[..text.len().min(SHOWN_BYTES_MAX)];
    shown.escape_ascii().to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &[&str], arguments: Option<&[&str]>) -> Vec<u8> {
        let mut out = Vec::new();
        for line in head {
            pkt::encode(&mut out, &[line.as_bytes(), b"\n"]).unwrap();
        }
        if let Some(arguments) = arguments {
            out.extend_from_slice(pkt::DELIM);
            for line in arguments {
                pkt::encode(&mut out, &[line.as_bytes()]).unwrap();
            }
        }
        out.extend_from_slice(pkt::FLUSH);
        out
    }

    fn head(lines: &[&str]) -> Result<Head, RequestError> {
        HeadReader::new(ObjectFormat::Sha1)
            .feed(&request(lines, Some(&[])))
            .map(|head| head.expect("the head is whole"))
    }

    #[test]
    fn a_head_is_read_at_every_split_and_kept_raw() {
        let body = request(&["command=fetch", "agent=git/2"], Some(&["want 1234"]));
        for split in 0..body.len() {
            let mut reader = HeadReader::new(ObjectFormat::Sha1);
            let (first, second) = body.split_at(split);
            let head = match reader.feed(first).unwrap() {
                Some(head) => head,
                None => reader.feed(second).unwrap().unwrap(),
            };
            assert_eq!(head.verb, Some(Verb::Fetch));
            let raw = reader.into_raw();
            assert_eq!(raw, body[..raw.len()]);
            assert!(raw.len() >= body.len().min(split));
        }
    }

    #[test]
    fn heads_that_ask_for_nothing_known_are_refused() {
        assert_eq!(head(&["agent=x"]), Err(RequestError::NoCommand));
        for (lines, found) in [
            (&["command=object-info"][..], "object-info"),
            (&["command=fetch", "command=ls-refs"], "ls-refs"),
        ] {
            let found = found.into();
            assert_eq!(head(lines), Err(RequestError::Command { found }));
        }
        assert_eq!(head(&[]), Ok(Head { verb: None }));
    }

    #[test]
    fn silence_about_the_object_format_means_sha1() {
        let lines = request(&["command=ls-refs"], None);
        let error = HeadReader::new(ObjectFormat::Sha256).feed(&lines);
        assert_eq!(
            error.unwrap_err().to_string(),
            "mismatched object format: server sha256; client sha1"
        );
        let lines = request(&["command=ls-refs", "object-format=sha256"], None);
        let head = HeadReader::new(ObjectFormat::Sha256).feed(&lines).unwrap();
        assert_eq!(head.unwrap().verb, Some(Verb::LsRefs));
    }

    #[test]
    fn an_endless_head_is_refused() {
        let mut reader = HeadReader::new(ObjectFormat::Sha1);
        let line = request(&[&"x".repeat(60_000)], None);
        let line = &line[..line.len() - 4];
        assert_eq!(reader.feed(line), Ok(None));
        assert_eq!(reader.feed(line), Err(RequestError::TooLong));
        let mut reader = HeadReader::new(ObjectFormat::Sha1);
        let empty_lines = "0004".repeat(HEAD_BYTES_MAX / 4 + 1);
        let error = reader.feed(empty_lines.as_bytes());
        assert_eq!(error, Err(RequestError::TooLong));
    }

    #[test]
    fn arguments_of_ls_refs_are_read() {
        let arguments =
            ["peel\n", "symrefs", "unborn", "ref-prefix refs/heads/", "ref-prefix HEAD\n"];
        let parsed = LsRefs::parse(&request(&["command=ls-refs"], Some(&arguments))).unwrap();
        let expected = LsRefs {
            peel: true,
            symrefs: true,
            unborn: true,
            prefixes: vec!["refs/heads/".into(), "HEAD".into()],
        };
        assert_eq!(parsed, expected);
        assert!(parsed.wants(b"HEAD") && !parsed.wants(b"refs/tags/v1"));
        let bare = LsRefs::parse(&request(&["command=ls-refs"], None)).unwrap();
        assert_eq!(bare, LsRefs::default());
        assert!(bare.wants(b"refs/tags/v1"));
    }

    #[test]
    fn bad_arguments_of_ls_refs_are_refused() {
        let error = LsRefs::parse(&request(&["command=ls-refs"], Some(&["want x"])));
        let found = "want x".into();
        assert_eq!(error, Err(RequestError::Argument { found }));
        let whole = request(&["command=ls-refs"], Some(&["peel"]));
        let cut = &whole[..whole.len() - 4];
        assert_eq!(LsRefs::parse(cut), Err(RequestError::Eof));
    }

    #[test]
    fn scans_are_sorted_and_disjoint() {
        let scans = |prefixes: &[&str]| {
            let prefixes = prefixes.iter().map(|p| BString::from(*p)).collect();
            let ls = LsRefs { prefixes, ..LsRefs::default() };
            ls.scans().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(scans(&[]), [""]);
        assert_eq!(
            scans(&["refs/tags/", "refs/heads/a", "refs/heads/", "HEAD", "refs/tags/"]),
            ["HEAD", "refs/heads/", "refs/tags/"]
        );
        assert_eq!(scans(&["a", "ab", "abc", "b"]), ["a", "b"]);
    }

    #[test]
    fn too_many_prefixes_are_no_filter() {
        let lines = vec!["ref-prefix a"; PREFIXES_MAX];
        let many = LsRefs::parse(&request(&["command=ls-refs"], Some(&lines))).unwrap();
        assert!(many.wants(b"z"));
        let few = LsRefs::parse(&request(&["command=ls-refs"], Some(&lines[1..]))).unwrap();
        assert!(!few.wants(b"z"));
    }

    #[test]
    fn every_kind_of_line_is_as_git_writes_it() {
        let one = ObjectId::from_hex("1".repeat(40).as_bytes()).unwrap();
        let two = ObjectId::from_hex("2".repeat(40).as_bytes()).unwrap();
        let line = |oid, symref_target, peeled| {
            let mut out = Vec::new();
            let name = b"HEAD";
            let line = RefLine { oid, name, symref_target, peeled };
            line.encode(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let ones = "1".repeat(40);
        let main = Some(b"refs/heads/main".as_slice());
        assert_eq!(line(None, main, None), "002eunborn HEAD symref-target:refs/heads/main\n");
        assert_eq!(line(Some(one), None, None), format!("0032{ones} HEAD\n"));
        assert_eq!(
            line(Some(one), main, Some(two)),
            format!("0080{ones} HEAD symref-target:refs/heads/main peeled:{}\n", "2".repeat(40))
        );
    }
}
