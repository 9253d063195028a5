//! The reference advertisement of a push (protocol v0; version 2 defines no push).

use refstone::{ObjectFormat, ObjectId};

use super::pkt::{self, PktError};

/// Appends the line that opens a smart HTTP answer, and its flush.
///
/// # Errors
///
/// [`PktError::TooLong`] for a service name of absurd length.
pub fn service_header(out: &mut Vec<u8>, service: &str) -> Result<(), PktError> {
    pkt::encode(out, &[b"# service=", service.as_bytes(), b"\n"])?;
    out.extend_from_slice(pkt::FLUSH);
    Ok(())
}

/// The capabilities of this server's receive-pack.
///
/// `push-options` and `push-cert` are absent because the server would have to drop what they carry.
#[must_use]
pub fn receive_pack_capabilities(format: ObjectFormat, agent: &str) -> String {
    format!(
        "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta \
         object-format={} agent={agent}",
        format.name()
    )
}

/// Writes the advertisement a ref at a time; the capabilities ride on the first line.
///
/// Refs must come in the order of their raw bytes, without `HEAD` and without peeled lines. A
/// repository without refs announces itself with the zero id and the name `capabilities^{}`:
/// clients that find an empty advertisement instead believe there is no server.
///
/// # Example
///
/// ```
/// use refstone::ObjectFormat;
/// use refstone_server::wire::advertise::ReceivePack;
///
/// let mut out = Vec::new();
/// ReceivePack::new("report-status".into()).finish(&mut out, ObjectFormat::Sha1).unwrap();
/// assert!(out.starts_with(b"004b0000000000000000000000000000000000000000 capabilities^{}\0"));
/// assert!(out.ends_with(b"report-status\n0000"));
/// ```
#[derive(Debug)]
pub struct ReceivePack {
    /// Gone once the first line has carried them.
    capabilities: Option<String>,
}

impl ReceivePack {
    /// Starts an advertisement.
    #[must_use]
    pub fn new(capabilities: String) -> Self {
        Self { capabilities: Some(capabilities) }
    }

    /// Appends one ref.
    ///
    /// # Errors
    ///
    /// [`PktError::TooLong`] when the name does not fit in a packet.
    pub fn push(&mut self, out: &mut Vec<u8>, oid: ObjectId, name: &[u8]) -> Result<(), PktError> {
        let oid = oid.to_hex();
        match self.capabilities.take() {
            Some(all) => {
                pkt::encode(out, &[oid.as_bytes(), b" ", name, b"\0", all.as_bytes(), b"\n"])
            }
            None => pkt::encode(out, &[oid.as_bytes(), b" ", name, b"\n"]),
        }
    }

    /// Ends the advertisement.
    ///
    /// # Errors
    ///
    /// [`PktError::TooLong`] for capabilities of absurd length.
    pub fn finish(mut self, out: &mut Vec<u8>, format: ObjectFormat) -> Result<(), PktError> {
        if self.capabilities.is_some() {
            self.push(out, ObjectId::zero(format), b"capabilities^{}")?;
        }
        out.extend_from_slice(pkt::FLUSH);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: char) -> ObjectId {
        ObjectId::from_hex(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    #[test]
    fn only_the_first_line_carries_capabilities() {
        let mut out = Vec::new();
        service_header(&mut out, "git-receive-pack").unwrap();
        let mut refs = ReceivePack::new("caps".into());
        refs.push(&mut out, oid('1'), b"refs/heads/\xff").unwrap();
        refs.push(&mut out, oid('2'), b"refs/tags/v1").unwrap();
        refs.finish(&mut out, ObjectFormat::Sha1).unwrap();
        let expected = [
            b"001f# service=git-receive-pack\n0000".as_slice(),
            b"003f1111111111111111111111111111111111111111 refs/heads/\xff\0caps\n",
            b"003a2222222222222222222222222222222222222222 refs/tags/v1\n0000",
        ];
        assert_eq!(bstr::BStr::new(&out), bstr::BStr::new(&expected.concat()));
    }

    #[test]
    fn an_empty_sha256_repository_has_a_long_zero_id() {
        let mut out = Vec::new();
        ReceivePack::new(receive_pack_capabilities(ObjectFormat::Sha256, "a/1"))
            .finish(&mut out, ObjectFormat::Sha256)
            .unwrap();
        let zero = "0".repeat(64);
        assert!(out[4..].starts_with(format!("{zero} capabilities^{{}}\0").as_bytes()));
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(" object-format=sha256 agent=a/1\n0000"));
    }
}
