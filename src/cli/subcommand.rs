//! The names of the subcommands.

/// The subcommands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subcommand {
    /// `dlock run`.
    Run,
    /// `dlock elect`.
    Elect,
    /// `dlock proclaim`.
    Proclaim,
    /// `dlock leader`.
    Leader,
    /// `dlock acquire`.
    Acquire,
    /// `dlock release`.
    Release,
    /// `dlock renew`.
    Renew,
    /// `dlock status`.
    Status,
    /// `dlock list`.
    List,
    /// `dlock watch`.
    Watch,
    /// `dlock break`.
    Break,
    /// `dlock doctor`.
    Doctor,
    /// `dlock completions`.
    Completions,
    /// `dlock man`.
    Man,
}

impl Subcommand {
    /// All of them, in the order of the help.
    pub const ALL: [Self; 14] = [
        Self::Run,
        Self::Elect,
        Self::Proclaim,
        Self::Leader,
        Self::Acquire,
        Self::Release,
        Self::Renew,
        Self::Status,
        Self::List,
        Self::Watch,
        Self::Break,
        Self::Doctor,
        Self::Completions,
        Self::Man,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Elect => "elect",
            Self::Proclaim => "proclaim",
            Self::Leader => "leader",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Status => "status",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Break => "break",
            Self::Doctor => "doctor",
            Self::Completions => "completions",
            Self::Man => "man",
        }
    }

    /// The subcommand of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}
