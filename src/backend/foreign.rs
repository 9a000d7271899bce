//! Entries that other programs' clients made.

use sha2::{Digest, Sha256};

use crate::lock::ClaimId;

/// The claim that an entry is shown as which no dlock made: the same for as long as it is the same entry, and another
/// for any other. `parts` are what the service knows it by, which a removal compares.
pub fn identity<const N: usize>(parts: [&[u8]; N]) -> ClaimId {
    let mut hash = Sha256::new();
    for part in parts {
        // With their lengths, so that no part can pass for two.
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
