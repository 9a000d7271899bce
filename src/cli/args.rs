//! The command line: the one source of help, completions and manual pages.
//!
//! Values are taken as the system's texts and typed by [`super::settings`], together with those from the
//! environment and the files, so that all three are judged alike. Only the tree of the named subcommand is
//! built: dlock starts before every job, and its start is what users wait for.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::{Args, Command, ValueHint};

use crate::backend::locator;

/// The subcommands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subcommand {
    /// `dlock run`.
    Run,
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
    pub const ALL: [Self; 8] = [
        Self::Run,
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

    /// Its part of the command line.
    pub fn command(self) -> Command {
        let empty = Command::new(self.name())
            .bin_name(format!("dlock {}", self.name()))
            .display_name(format!("dlock-{}", self.name()))
            .args_override_self(true)
            .max_term_width(100);
        match self {
            Self::Run => RunArgs::augment_args(empty)
                .about("Run a command under a lock")
                .after_help(RUN_EXAMPLES)
                .override_usage("dlock run [OPTIONS] --name NAME [--name NAME]... [--] COMMAND [ARG]..."),
            Self::Status => {
                StatusArgs::augment_args(empty).about("Show who holds and waits for locks, in order")
            }
            Self::List => ListArgs::augment_args(empty).about("List the locks that have holders or waiters"),
            Self::Watch => WatchArgs::augment_args(empty)
                .about("Show a lock's queue after each change, until interrupted")
                .override_usage("dlock watch NAME [--json]"),
            Self::Break => BreakArgs::augment_args(empty)
                .about("End a hold or a wait of somebody else")
                .override_usage("dlock break NAME [--claim ID | --all] [--yes] [--force]"),
            Self::Doctor => DoctorArgs::augment_args(empty)
                .about("Explain the configuration and look for what can cost a lock"),
            Self::Completions => {
                CompletionsArgs::augment_args(empty).about("Print the completions for a shell")
            }
            Self::Man => ManArgs::augment_args(empty).about("Print a manual page"),
        }
    }
}

/// The whole tree.
pub fn command() -> Command {
    Command::new("dlock")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Put a distributed lock in front of a command")
        .after_help("Examples:\n  dlock run --name nightly -- ./backup.sh\n  dlock status nightly\n\nOptions follow the command: dlock COMMAND --help tells them.")
        .arg_required_else_help(false)
        .subcommand_required(true)
        .max_term_width(100)
        .subcommands(Subcommand::ALL.map(Subcommand::command))
}

const RUN_EXAMPLES: &str = "\
Examples:
  Skip this run if the last one still goes on, and let cron mail nothing about it:
    dlock run --name backup --try -E 0 -- ./backup.sh
  Wait for the lock, but at most ten minutes:
    dlock run --name deploy --wait 10m -- ./deploy.sh production
  At most three at once, with a shell's syntax:
    dlock run --name render --slots 3 -c 'render < in.txt > out.png'";

/// Where the lock service is.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The kind of lock service.
    #[arg(long, value_name = "BACKEND", help = backend_help())]
    pub backend: Option<OsString>,
    /// Where the service is, several times or as a comma list; for file the lock directory [default: the
    /// service's usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID]
    /// [env: DLOCK_ENDPOINT]
    #[arg(long, value_name = "URL", value_hint = ValueHint::DirPath)]
    pub endpoint: Vec<OsString>,
    /// What stands before each name at the service, also empty [default: the backend's own]
    /// [env: DLOCK_PREFIX]
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<OsString>,
    /// The user to log in as [env: DLOCK_USER]
    #[arg(long, value_name = "USER")]
    pub user: Option<OsString>,
    /// A file with the password in its first line; or the password in the environment [env:
    /// DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<OsString>,
    /// The PEM file of the authorities whose servers are believed [default: the system's] [env: DLOCK_CACERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cacert: Option<OsString>,
    /// The PEM file of the certificate to show to the server [env: DLOCK_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cert: Option<OsString>,
    /// The PEM file of that certificate's key [env: DLOCK_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<OsString>,
    /// The name that the server's certificate must have [default: that of the address]
    /// [env: DLOCK_TLS_SERVER_NAME]
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<OsString>,
    /// How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]
    #[arg(long, value_name = "LAYOUT")]
    pub zk_layout: Option<OsString>,
    /// The longest ttl on several independent Redis servers, each of which has no say for so long after its restart;
    /// the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]
    #[arg(long, value_name = "DURATION")]
    pub max_ttl: Option<OsString>,
    /// The configuration file to use instead of the user's own [default: $XDG_CONFIG_HOME/dlock/config.toml]
    /// [env: DLOCK_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<OsString>,
    /// The profile of the configuration files to use [env: DLOCK_PROFILE]
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<OsString>,
    /// Use a lock directory on a network file system, where locks may not hold between hosts
    #[arg(long)]
    pub allow_network_fs: bool,
}

fn backend_help() -> String {
    let names = locator::names("or");
    format!(
        "The kind of lock service: {names} [default: what the endpoint says, else file] [env: DLOCK_BACKEND]"
    )
}

/// How much is said, and to whom.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Messages")]
pub struct MessageArgs {
    /// Say nothing of waiting and busy locks; other failures are still told
    #[arg(short, long)]
    pub quiet: bool,
    /// Say how it goes
    #[arg(short, long)]
    pub verbose: bool,
    /// How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT", value_parser = ["human", "json"], hide_possible_values = true)]
    pub log_format: Option<String>,
}

/// `dlock run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct RunArgs {
    /// The command and its arguments; options before it are dlock's, all after it its own
    #[arg(help_heading = "Command", value_name = "COMMAND", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub argv: Vec<OsString>,
    /// The lock. Several names are acquired together, all or none
    #[arg(long, value_name = "NAME")]
    pub name: Vec<OsString>,
    /// Hold together with other shared holders
    #[arg(short, long)]
    pub shared: bool,
    /// Hold alone, which is the default
    #[arg(short = 'x', long)]
    pub exclusive: bool,
    /// Hold together with at most N-1 others that also say N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub slots: Option<OsString>,
    /// Do not wait: give up at once if the lock is not free
    #[arg(short = 'n', long = "try")]
    pub try_once: bool,
    /// Give up after DURATION [default: wait indefinitely]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    pub wait: Option<OsString>,
    /// The exit status when the lock was not acquired, 0 to 255 [default: 75]
    #[arg(short = 'E', long, value_name = "STATUS", allow_hyphen_values = true)]
    pub busy_exit_code: Option<OsString>,
    /// The length of the lease, at least 1s [default: 30s] [env: DLOCK_TTL]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub ttl: Option<OsString>,
    /// The time between SIGTERM and SIGKILL when the command is ended [default: 5s] [env: DLOCK_GRACE]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub grace: Option<OsString>,
    /// Stop the command after DURATION under the lock [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub max_run: Option<OsString>,
    /// Keep the lock for DURATION at least, also when the command ends sooner [default: 0]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub hold_at_least: Option<OsString>,
    /// Skip (exit 0) if a run that acquired the lock within the last DURATION succeeded [default: off]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub once_per: Option<OsString>,
    /// Take the place of older waiters that also said so; they exit as busy
    #[arg(long)]
    pub supersede: bool,
    /// Hold until every descendant of the command has ended, not just the command
    #[arg(long)]
    pub whole_tree: bool,
    /// Ask for a second claim even under an own hold of this lock
    #[arg(long)]
    pub no_nest: bool,
    /// Run STRING with /bin/sh instead of a command and its arguments
    #[arg(short = 'c', long = "command", value_name = "STRING", allow_hyphen_values = true, value_hint = ValueHint::CommandString)]
    pub shell_command: Option<OsString>,
    /// A text that others see in status
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub label: Option<OsString>,
    /// Write a JSON object on how it went to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<OsString>,
    /// Write the same to FILE as Prometheus text, for the node exporter's textfile collector
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metrics_file: Option<OsString>,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The lock, or several [default: all that have holders or waiters]
    #[arg(value_name = "NAME")]
    pub names: Vec<OsString>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    pub named: Vec<OsString>,
    /// Print a JSON object, one a line for each name
    #[arg(long, conflicts_with = "wide")]
    pub json: bool,
    /// Show also token, time to live and the whole claim, and cut nothing
    #[arg(long)]
    pub wide: bool,
    /// Exit 75 if one of the locks is held or waited for, 0 if all are free
    #[arg(long)]
    pub exit_code: bool,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only locks whose names start with this
    #[arg(value_name = "PREFIX")]
    pub starting_with: Option<OsString>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock watch`.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The lock
    #[arg(value_name = "NAME")]
    pub name: Option<OsString>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    pub named: Option<OsString>,
    /// Print a JSON object after each change, one a line
    #[arg(long)]
    pub json: bool,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock break`.
#[derive(Args, Debug)]
pub struct BreakArgs {
    /// The lock
    #[arg(value_name = "NAME")]
    pub name: Option<OsString>,
    /// The lock, as run takes it; the same as NAME
    #[arg(long = "name", value_name = "NAME")]
    pub named: Option<OsString>,
    /// The claim to end, as status shows it; its first digits are enough, at least eight [default: the only one there is]
    #[arg(long, value_name = "ID")]
    pub claim: Option<OsString>,
    /// End every claim on the lock, waiters first
    #[arg(long)]
    pub all: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Remove the entry at once instead of asking its holder to end; two commands may overlap. Entries of other programs
    /// need it
    #[arg(long)]
    pub force: bool,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the statements that make a database's tables, and connect to nothing
    #[arg(long, conflicts_with = "json")]
    pub schema: bool,
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}

/// `dlock completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", required = true, value_enum)]
    pub shell: Option<clap_complete::Shell>,
}

/// `dlock man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The command whose page is printed [default: the main page]
    #[arg(value_name = "COMMAND", value_parser = Subcommand::ALL.map(Subcommand::name))]
    pub page: Option<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<OsString>,
}
