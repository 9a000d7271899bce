//! `dlock completions`.

use clap_complete::Shell;

use super::args;

/// The completions of the whole command line for `shell`.
pub fn script(shell: Shell) -> String {
    let mut command = args::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "dlock", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The generated files below `completions/`: name and text.
pub fn files() -> Vec<(String, String)> {
    [(Shell::Bash, "dlock.bash"), (Shell::Zsh, "_dlock"), (Shell::Fish, "dlock.fish")]
        .map(|(shell, name)| (name.to_owned(), script(shell)))
        .into()
}
