//! The options that every command takes: where the lock service is, and how much is said.

#![expect(clippy::doc_markdown, reason = "the comments on options are the text of the help")]

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::backend::locator;

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
    /// Key prefix; may be empty [default: the backend's own]
    /// [env: DLOCK_PREFIX]
    #[arg(long, value_name = "PREFIX", hide_short_help = true)]
    pub prefix: Option<OsString>,
    /// The user to log in as [env: DLOCK_USER]
    #[arg(long, value_name = "USER", hide_short_help = true)]
    pub user: Option<OsString>,
    /// A file with the password in its first line; or the password in the environment [env:
    /// DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub password_file: Option<OsString>,
    /// CA certificates to trust (PEM) [default: the system's] [env: DLOCK_CACERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub cacert: Option<OsString>,
    /// The PEM file of the certificate to show to the server [env: DLOCK_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub cert: Option<OsString>,
    /// The PEM file of that certificate's key [env: DLOCK_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub key: Option<OsString>,
    /// The name that the server's certificate must have [default: that of the address]
    /// [env: DLOCK_TLS_SERVER_NAME]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub tls_server_name: Option<OsString>,
    /// How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]
    #[arg(help_heading = "ZooKeeper", long, value_name = "LAYOUT", hide_short_help = true)]
    pub zk_layout: Option<OsString>,
    /// The longest ttl on several independent Redis servers, each of which does not vote for that long after a restart;
    /// the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]
    #[arg(help_heading = "Redlock", long, value_name = "DURATION", hide_short_help = true)]
    pub max_ttl: Option<OsString>,
    /// The configuration file to use instead of the user's own [default: $XDG_CONFIG_HOME/dlock/config.toml]
    /// [env: DLOCK_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub config: Option<OsString>,
    /// The profile of the configuration files to use [env: DLOCK_PROFILE]
    #[arg(long, value_name = "PROFILE", hide_short_help = true)]
    pub profile: Option<OsString>,
    /// Use a lock directory on a network file system, where locks may not hold between hosts
    #[arg(help_heading = "Lock files", long, hide_short_help = true)]
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
    /// Do not report waiting and busy locks, only other failures
    #[arg(short, long)]
    pub quiet: bool,
    /// Report each step
    #[arg(short, long)]
    pub verbose: bool,
    /// How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT", value_parser = ["human", "json"], hide_possible_values = true, hide_short_help = true)]
    pub log_format: Option<String>,
}

/// What every subcommand takes.
#[derive(Args, Debug, Default)]
pub struct CommonArgs {
    /// Where the lock service is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much is said.
    #[command(flatten)]
    pub messages: MessageArgs,
}
