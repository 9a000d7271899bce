//! The options of all subcommands: the lock service, and the messages.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::backend::locator;

// The lock service.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The kind of lock service.
    #[arg(long, value_name = "BACKEND", help = backend_help())]
    pub backend: Option<OsString>,
    /// Connect to URL; repeatable or comma-separated. For file, the lock directory [default: the service's usual
    /// port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID]
    /// [env: DLOCK_ENDPOINT]
    #[arg(long, value_name = "URL", value_hint = ValueHint::DirPath)]
    pub endpoint: Vec<OsString>,
    /// Begin keys or paths with PREFIX, which may be empty [default: the backend's own]
    /// [env: DLOCK_PREFIX]
    #[arg(long, value_name = "PREFIX", hide_short_help = true)]
    pub prefix: Option<OsString>,
    /// Log in as USER [env: DLOCK_USER]
    #[arg(long, value_name = "USER", hide_short_help = true)]
    pub user: Option<OsString>,
    /// Read the password from the first line of FILE [env: DLOCK_PASSWORD_FILE; the password itself: DLOCK_PASSWORD]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub password_file: Option<OsString>,
    /// Trust the CA certificates in FILE (PEM) [default: the system's] [env: DLOCK_CACERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub cacert: Option<OsString>,
    /// Present the client certificate in FILE (PEM) [env: DLOCK_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub cert: Option<OsString>,
    /// Read the private key of the client certificate from FILE (PEM) [env: DLOCK_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub key: Option<OsString>,
    /// Expect NAME in the server's certificate [default: the host in the endpoint]
    /// [env: DLOCK_TLS_SERVER_NAME]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub tls_server_name: Option<OsString>,
    /// Name ZooKeeper nodes as curator or kazoo does [default: curator] [env: DLOCK_ZK_LAYOUT]
    #[arg(help_heading = "ZooKeeper", long, value_name = "LAYOUT", hide_short_help = true)]
    pub zk_layout: Option<OsString>,
    /// Redlock: limit the TTL; a restarted server abstains for DURATION. The same for all users of a lock
    /// [default: 60s] [env: DLOCK_MAX_TTL]
    #[arg(help_heading = "Redlock", long, value_name = "DURATION", hide_short_help = true)]
    pub max_ttl: Option<OsString>,
    /// Read FILE instead of the user's configuration [default: $XDG_CONFIG_HOME/dlock/config.toml]
    /// [env: DLOCK_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub config: Option<OsString>,
    /// Use PROFILE from the configuration files [env: DLOCK_PROFILE]
    #[arg(long, value_name = "PROFILE", hide_short_help = true)]
    pub profile: Option<OsString>,
    /// Accept a lock directory on a network file system, where locks may not work between hosts
    #[arg(help_heading = "Lock files", long, hide_short_help = true)]
    pub allow_network_fs: bool,
}

fn backend_help() -> String {
    let names = locator::names("or");
    format!(
        "Use this kind of lock service: {names} [default: by the scheme of the endpoint, else file] [env: DLOCK_BACKEND]"
    )
}

// How much is printed, and in which format.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
#[command(next_help_heading = "Messages")]
pub struct MessageArgs {
    /// Print failures and warnings only, and not that the lock is busy
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Report each step
    #[arg(short, long)]
    pub verbose: bool,
    /// Write messages as text (human) or as one JSON object a line (json) [default: human] [env: DLOCK_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT", value_parser = ["human", "json"], hide_possible_values = true, hide_short_help = true)]
    pub log_format: Option<String>,
}

// The options of all subcommands.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct CommonArgs {
    /// The lock service.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// The messages.
    #[command(flatten)]
    pub messages: MessageArgs,
}
