//! Whether an environment shows that its process runs under a claim.

/// The variables that show it.
const NAMES: [&[u8]; 2] = [b"DLOCK_CLAIM", b"DLOCK_HELD"];
/// The length of the longest name and one more, so that a longer name does not match.
const ROOM: usize = 12;

/// Searches an environment piece by piece, without allocating.
#[derive(Debug)]
pub(super) struct Reader {
    claim: u128,
    /// The beginning of the present variable's name.
    name: [u8; ROOM],
    length: usize,
    in_value: bool,
    /// The present variable is one of [`NAMES`].
    counts: bool,
    /// The number of hexadecimal digits just read from its value, and the last 32 of them.
    digits: u32,
    last: u128,
}

impl Reader {
    /// Starts a search for `claim`, written as 32 digits.
    pub(super) fn new(claim: u128) -> Self {
        Self { claim, name: [0; ROOM], length: 0, in_value: false, counts: false, digits: 0, last: 0 }
    }

    /// Takes the next piece. Returns whether it completes the claim.
    pub(super) fn finds(&mut self, piece: &[u8]) -> bool {
        piece.iter().any(|byte| self.takes(*byte))
    }

    fn takes(&mut self, byte: u8) -> bool {
        if byte == 0 {
            *self = Self::new(self.claim);
        } else if self.in_value {
            let digit = char::from(byte).to_digit(16);
            self.digits = if digit.is_some() { self.digits.saturating_add(1) } else { 0 };
            self.last = self.last << 4 | u128::from(digit.unwrap_or(0));
        } else if byte == b'=' {
            self.in_value = true;
            self.counts = NAMES.contains(&&self.name[..self.length]);
        } else if let Some(room) = self.name.get_mut(self.length) {
            *room = byte;
            self.length += 1;
        }
        self.counts && self.digits >= 32 && self.last == self.claim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "0123456789abcdef0123456789abcdef";

    fn finds(environment: &str, pieces: usize) -> bool {
        let mut reader = Reader::new(u128::from_str_radix(CLAIM, 16).expect("32 digits"));
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
