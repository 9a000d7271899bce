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

use super::shell::Shell;
pub use answer::answer;

/// Returns the script for `shell`.
pub fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("dlock.bash"),
        Shell::Zsh => include_str!("dlock.zsh"),
        Shell::Fish => include_str!("dlock.fish"),
    }
}

/// Returns the generated files of `completions/`: name and text.
pub fn files() -> Vec<(String, String)> {
    [(Shell::Bash, "dlock.bash"), (Shell::Zsh, "_dlock"), (Shell::Fish, "dlock.fish")]
        .map(|(shell, name)| (name.to_owned(), script(shell).to_owned()))
        .into()
}
