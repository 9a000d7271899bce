//! `dlock completions`, and the answers to its scripts.
//!
//! The scripts for bash, zsh and fish call `dlock __complete WORD...` with the words from the one after `dlock` to the cursor, the last one as far
//! as it is typed. The first line of the answer says what can follow, and after `words` each line has a candidate:
//!
//! | first line | |
//! |---|---|
//! | `words` | the candidates follow, each with a tab and its meaning, if that is known |
//! | `files`, `directories` | the shell's own |
//! | `command N` | the command to run begins at word N, `dlock` being 0: as if it were typed alone |

mod answer;

pub use answer::answer;

/// Returns the script for `shell`, one of [`SHELLS`](super::args::SHELLS).
pub fn script(shell: &str) -> &'static str {
    match shell {
        "bash" => include_str!("../../../completions/dlock.bash"),
        "zsh" => include_str!("../../../completions/_dlock"),
        _ => include_str!("../../../completions/dlock.fish"),
    }
}
