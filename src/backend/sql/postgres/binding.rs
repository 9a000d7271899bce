//! Channel binding, which ties a login to its encrypted connection (RFC 5929, `tls-server-end-point`).

use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio_postgres::config::ChannelBinding;

/// The beginning of the object identifiers of RSA signatures.
const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// The beginning of the object identifiers of ECDSA signatures.
const ECDSA: [u8; 6] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// Parses libpq's `channel_binding`.
pub(super) fn parsed(said: Option<&str>) -> Result<ChannelBinding, String> {
    match said {
        None | Some("prefer") => Ok(ChannelBinding::Prefer),
        Some("disable") => Ok(ChannelBinding::Disable),
        Some("require") => Ok(ChannelBinding::Require),
        Some(other) => Err(format!(
            "{other:?} is not a channel_binding (PGCHANNELBINDING); there are disable, prefer and require"
        )),
    }
}

/// The beginning of the contents of a certificate of version 3.
const VERSION_3: [u8; 5] = [0xa0, 3, 2, 1, 2];

/// Returns the digest of the server's `certificate`, by the algorithm of its signature, if that implies one. Another
/// version than 3 has none, because the server's possession of the key was not verified.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = taken_off(certificate)?;
    let (contents, behind) = taken_off(whole)?;
    contents.strip_prefix(&VERSION_3)?;
    let (algorithm, _) = taken_off(behind)?;
    let (id, _) = taken_off(algorithm)?;
    let by_rsa = id.strip_prefix(&RSA).map(|rest| match rest {
        // MD5 and SHA-1 are replaced by SHA-256.
        [4 | 5 | 11] => 256,
        [12] => 384,
        [13] => 512,
        _ => 0,
    });
    let by_ecdsa = id.strip_prefix(&ECDSA).map(|rest| match rest {
        [1] | [3, 2] => 256,
        [3, 3] => 384,
        [3, 4] => 512,
        _ => 0,
    });
    match by_rsa.or(by_ecdsa)? {
        256 => Some(Sha256::digest(certificate).to_vec()),
        384 => Some(Sha384::digest(certificate).to_vec()),
        512 => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

/// Splits off the first DER value of `bytes`, and returns its contents and the rest.
fn taken_off(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[_, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match usize::from(first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (number, rest) =
                rest.split_at_checked(long - 0x80).filter(|(number, _)| number.len() <= 4)?;
            (number.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a certificate that contains only the signed contents and the algorithm.
    fn certificate(contents: &[u8], id: &[u8]) -> Vec<u8> {
        let value = |tag: u8, contents: &[u8]| {
            let mut all = vec![tag, 0x82, 0, u8::try_from(contents.len()).expect("short")];
            all.extend_from_slice(contents);
            all
        };
        let algorithm = value(0x30, &value(6, id));
        value(0x30, &[value(0x30, contents), algorithm].concat())
    }

    #[test]
    fn binding_digest_matches_the_signature_algorithm() {
        for (prefix, rest, length) in [
            (&RSA[..], &[5][..], Some(32)),
            (&RSA, &[11], Some(32)),
            (&RSA, &[12], Some(48)),
            (&RSA, &[13], Some(64)),
            (&RSA, &[10], None),
            (&ECDSA, &[3, 2], Some(32)),
            (&ECDSA, &[3, 3], Some(48)),
            (&[0x2b, 0x65, 0x70], &[], None),
        ] {
            let found = end_point(&certificate(&VERSION_3, &[prefix, rest].concat()));
            assert_eq!(found.map(|digest| digest.len()), length, "{prefix:?} {rest:?}");
        }
        assert_eq!(end_point(&certificate(b"version 1", &[&RSA[..], &[11]].concat())), None);
        assert_eq!(end_point(b"0"), None);
        assert_eq!(end_point(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
