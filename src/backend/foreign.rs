//! Entries of other programs' clients.

use sha2::{Digest, Sha256};

use crate::lock::ClaimId;

/// Returns the claim id under which an entry of another program is shown: stable for one entry, and different for any
/// other. `parts` are the service's identification of the entry, which a removal compares.
pub fn identity<const N: usize>(parts: [&[u8]; N]) -> ClaimId {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that two parts differ from one joined part.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    ClaimId::from_bytes(std::array::from_fn(|at| digest[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_entry_is_another_claim() {
        let all = [identity([b"a", b"1"]), identity([b"a", b"2"]), identity([b"a1", b""]), identity([b"a1"])];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{one}");
        }
        assert_eq!(identity([b"a", b"1"]), all[0]);
    }
}
