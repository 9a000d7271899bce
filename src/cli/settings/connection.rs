//! The settings that all subcommands have: the lock service, and the form of messages.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, anyhow};

use crate::backend::{Options, locator};
use crate::cli::args::{CommonArgs, ConnectionArgs, MessageArgs};
use crate::cli::exit_code::Hinted as _;
use crate::cli::layers::{Environment, Layers};
use crate::cli::source::{Source, Sources};
use crate::cli::{credentials, values};
use crate::net::credentials::Tls;
use crate::net::passwords::{apart, has_password};
use crate::output::{LogFormat, Printer, Verbosity};

/// The lock service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connection {
    /// The options.
    pub options: Options,
    /// The sources of all values.
    pub sources: Sources,
}

impl Connection {
    /// Resolves `args` with the environment and the configuration files, and sets the printer of `around`.
    pub fn resolve(args: &CommonArgs, around: &Environment) -> Result<Self> {
        let mut layers = Layers::load(&args.connection, around)?;
        set_printer(&mut layers, &args.messages, around)?;
        connection(&mut layers, &args.connection)
    }
}

/// Sets the printer of `around`: how much is printed, and in which format.
pub(in crate::cli) fn set_printer(
    layers: &mut Layers,
    args: &MessageArgs,
    around: &Environment,
) -> Result<()> {
    let verbosity = match (args.quiet, args.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ if layers.switch("quiet", false) => Verbosity::Quiet,
        _ if layers.switch("verbose", false) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    let log_format = layers.text("log-format", args.log_format.as_deref().map(OsStr::new))?;
    let log_format = log_format.as_ref().map_or(Ok(LogFormat::Human), values::log_format)?;
    around.printer.set(Printer::new(verbosity, log_format));
    Ok(())
}

/// Returns the settings of the lock service.
pub(in crate::cli) fn connection(layers: &mut Layers, args: &ConnectionArgs) -> Result<Connection> {
    let endpoints = layers.texts("endpoint", args.endpoint.iter().map(OsString::as_os_str))?;
    let endpoints = endpoints.map(|(texts, source)| {
        let addresses: Vec<String> = texts.iter().flat_map(|text| apart(text)).collect();
        (addresses, source)
    });
    if let Some((urls, Source::Flag(_))) = &endpoints
        && urls.iter().any(|url| has_password(url))
    {
        return Err(anyhow!(
            "--endpoint: a password on the command line can be read by every user of this host"
        )
        .hint("put it into DLOCK_ENDPOINT or into a configuration file that only you can read"));
    }
    let endpoints_in = endpoints.as_ref().and_then(|(_, source)| match source {
        Source::Environment(_) => Some("the environment"),
        Source::File { .. } => Some("a configuration file"),
        Source::Flag(_) | Source::Default => None,
    });
    let mut text = |option, flag: &Option<OsString>| layers.text(option, flag.as_deref());
    let mut options = Options {
        backend: text("backend", &args.backend)?.map(|found| found.text),
        endpoints: endpoints.map_or_else(Vec::new, |(urls, _)| urls),
        endpoints_in,
        prefix: text("prefix", &args.prefix)?.map(values::prefix).transpose()?,
        user: text("user", &args.user)?.map(|found| found.text),
        zk_layout: text("zk-layout", &args.zk_layout)?.as_ref().map(values::zk_layout).transpose()?,
        max_ttl: text("max-ttl", &args.max_ttl)?.as_ref().map(values::ttl).transpose()?,
        password: None,
        tls: Tls::default(),
        allow_network_fs: layers.switch("allow-network-fs", args.allow_network_fs),
    };
    // One configuration may serve all users of a host. Not every user can read the secrets of every service.
    let is_needed = locator::may_log_in(&options);
    options.password = credentials::password(layers, args, is_needed)?;
    options.tls = credentials::tls(layers, args, is_needed)?;
    Ok(Connection { options, sources: layers.sources.clone() })
}
