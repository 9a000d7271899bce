//! The shells that dlock has completions for.

use clap::ValueEnum;

/// The shells that have completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}
