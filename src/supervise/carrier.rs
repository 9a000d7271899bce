//! Whether an environment shows that its process runs under a claim.

/// The variables that show it.
const NAMES: [&[u8]; 2] = [b"DLOCK_CLAIM", b"DLOCK_HELD"];
/// The length of the longest name and one more, so that a longer name does not match.
const ROOM: usize = 12;

/// Searches an environment piece by piece, without allocating.
#[derive(Debug)]
pub(super) struct Reader {
    claim: [u8; 32],
    /// The beginning of the present variable's name.
    name: [u8; ROOM],
    length: usize,
    /// The present variable is one of [`NAMES`], and its value is being read.
    counts: bool,
    in_value: bool,
    /// The last bytes of that value, the oldest at `at`.
    last: [u8; 32],
    at: usize,
}

impl Reader {
    /// Starts a search for `claim`, written as 32 digits.
    pub(super) fn new(claim: [u8; 32]) -> Self {
        Self { claim, name: [0; ROOM], length: 0, counts: false, in_value: false, last: [0; 32], at: 0 }
    }

    /// Takes the next piece. Returns whether it completes the claim.
    pub(super) fn finds(&mut self, piece: &[u8]) -> bool {
        piece.iter().any(|byte| self.takes(*byte))
    }

    fn takes(&mut self, byte: u8) -> bool {
        match byte {
            0 => {
                (self.length, self.counts, self.in_value) = (0, false, false);
                false
            }
            b'=' if !self.in_value => {
                self.in_value = true;
                self.counts = NAMES.contains(&&self.name[..self.length]);
                self.last = [0; 32];
                false
            }
            _ if !self.in_value => {
                if let Some(room) = self.name.get_mut(self.length) {
                    *room = byte;
                    self.length += 1;
                }
                false
            }
            _ if !self.counts => false,
            _ => {
                self.last[self.at] = byte;
                self.at = (self.at + 1) % self.last.len();
                let (newer, older) = self.last.split_at(self.at);
                self.claim.strip_prefix(older).is_some_and(|rest| rest == newer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "0123456789abcdef0123456789abcdef";

    fn finds(environment: &str, pieces: usize) -> bool {
        let mut reader = Reader::new(CLAIM.as_bytes().try_into().expect("32 digits"));
        environment.as_bytes().chunks(pieces).any(|piece| reader.finds(piece))
    }

    #[test]
    fn a_claim_is_found_wherever_it_stands_and_however_it_is_read() {
        let held = format!("[{{\"claim\":\"77\"}},{{\"claim\":\"{CLAIM}\"}}]");
        for value in [format!("A=1\0DLOCK_CLAIM={CLAIM}\0B=2\0"), format!("DLOCK_HELD={held}\0")] {
            for pieces in [1, 3, 7, 4096] {
                assert!(finds(&value, pieces), "{value} in {pieces}");
            }
        }
    }

    #[test]
    fn other_variables_are_no_claim() {
        let other = CLAIM.replace('7', "8");
        for text in [
            format!("CLAIM={CLAIM}\0"),
            format!("DLOCK_CLAIMS={CLAIM}\0"),
            format!("DLOCK_CLAIM={other}\0"),
            format!("X=DLOCK_CLAIM={CLAIM}\0"),
            format!("DLOCK_CLAIM={}\0{}\0", &CLAIM[..16], &CLAIM[16..]),
            "DLOCK_CLAIM=\0".to_owned(),
            String::new(),
        ] {
            assert!(!finds(&text, 5), "{text}");
        }
    }
}
