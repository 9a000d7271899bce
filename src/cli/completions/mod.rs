//! `dlock completions`, and what its scripts ask for.
//!
//! The scripts for bash, zsh and fish call `dlock __complete WORD...` with the words from the one after `dlock` to the cursor, the last one as far
//! as it is typed. The answer is one line that says what can stand there, and for `words` a line for each candidate:
//!
//! | first line | |
//! |---|---|
//! | `words` | the candidates follow, each with a tab and what it means, if that is known |
//! | `files`, `directories` | the shell's own |
//! | `command N` | the command to run begins at word N, `dlock` being 0: as if it were typed alone |
//!
//! The other shells have what clap makes of the options.

mod candidates;
mod cursor;

use clap_complete::Shell;

use super::args;
pub use candidates::answer;

/// The completions of the whole command line for `shell`.
pub fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => include_str!("dlock.bash").to_owned(),
        Shell::Zsh => include_str!("dlock.zsh").to_owned(),
        Shell::Fish => include_str!("dlock.fish").to_owned(),
        other => {
            let mut text = Vec::new();
            clap_complete::generate(other, &mut args::command(), "dlock", &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

/// The generated files below `completions/`: name and text.
pub fn files() -> Vec<(String, String)> {
    [(Shell::Bash, "dlock.bash"), (Shell::Zsh, "_dlock"), (Shell::Fish, "dlock.fish")]
        .map(|(shell, name)| (name.to_owned(), script(shell)))
        .into()
}
