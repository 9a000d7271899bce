//! The settings of `acquire`, `release` and `renew`.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, anyhow, bail};

use super::looks::{claim_digits, viewing};
use super::{RunSettings, Viewing};
use crate::cli::args::{AcquireArgs, ClaimArgs, RunArgs};
use crate::cli::exit_code::Hinted as _;
use crate::cli::layers::Environment;
use crate::cli::values;
use crate::lock::LockName;
use crate::output::assignments::Format;
use crate::output::sanitise;

/// The user of an acquired lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beneficiary {
    /// This process, which exists already.
    Process(i32),
    /// No process: a lease of one TTL, unless it is renewed.
    Nobody,
}

/// `dlock acquire`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcquireSettings {
    /// The settings of `run`; other clients see the command.
    pub run: RunSettings,
    /// The user of the lock.
    pub beneficiary: Beneficiary,
    /// The format of the claim.
    pub format: Format,
}

/// `dlock release` and `dlock renew`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimSettings {
    /// The first digits of the claim, at least eight.
    pub claim: String,
    /// The locks of the claim, at least one.
    pub names: Vec<LockName>,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

impl AcquireSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: AcquireArgs, around: &Environment) -> Result<Self> {
        let beneficiary = beneficiary(args.for_pid.as_deref(), args.detach)?;
        let format = args.format.as_deref().and_then(Format::named).unwrap_or_default();
        let run_args = RunArgs {
            // Other clients see the name of the process, or the command that acquired the lease.
            argv: vec![shown(beneficiary)],
            lock: args.lock,
            supersede: args.supersede,
            no_nest: true,
            label: args.label,
            common: args.common,
            ..RunArgs::default()
        };
        if run_args.lock.name.is_empty() {
            return Err(
                anyhow!("--name is missing; name the lock with --name NAME").hint("see dlock acquire --help")
            );
        }
        let run = RunSettings::resolve(&run_args, around)?;
        if run.busy_exit_code == 0 {
            bail!("with -E 0 a script would continue without the lock; choose 1 to 255, or leave it out");
        }
        Ok(Self { run, beneficiary, format })
    }
}

fn beneficiary(pid: Option<&OsStr>, detach: bool) -> Result<Beneficiary> {
    match (pid, detach) {
        (Some(_), true) => Err(anyhow!("--for-pid and --detach are both given; choose one of them")),
        (None, true) => Ok(Beneficiary::Nobody),
        (None, false) => Err(anyhow!("--for-pid or --detach is missing; pass one of them")
            .hint("in a shell script write --for-pid $$")),
        (Some(text), false) => {
            let pid = text.to_str().and_then(|text| text.parse().ok()).filter(|pid| *pid > 0);
            pid.map(Beneficiary::Process).ok_or_else(|| {
                anyhow!("--for-pid: {:?} is not a pid", sanitise::os(text))
                    .hint("in a shell script write --for-pid $$")
            })
        }
    }
}

/// Returns the first word of the process's command line, or of this command for a lease without a process.
fn shown(beneficiary: Beneficiary) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let Beneficiary::Process(pid) = beneficiary else { return "dlock acquire".into() };
    let first_word = |line: Vec<u8>| line.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok().and_then(first_word);
    words.filter(|word| !word.is_empty()).map_or_else(|| "dlock acquire".into(), OsString::from_vec)
}

impl ClaimSettings {
    /// Resolves `args` with the environment and the configuration files. Claim and names may be in the variables that `acquire`
    /// printed.
    pub fn resolve(args: &ClaimArgs, around: &Environment) -> Result<Self> {
        let variable = |name: &str| (around.variable)(name).filter(|value| !value.is_empty());
        let claim = if let Some(text) = &args.claim {
            claim_digits("CLAIM", text)?
        } else {
            let text = variable("DLOCK_CLAIM").ok_or_else(|| {
                anyhow!("CLAIM is missing, and DLOCK_CLAIM is not set")
                    .hint("eval what dlock acquire prints, or write the claim")
            })?;
            claim_digits("DLOCK_CLAIM", &text)?
        };
        let names = if args.name.is_empty() {
            let text = variable("DLOCK_NAMES").or_else(|| variable("DLOCK_NAME")).ok_or_else(|| {
                anyhow!("--name is missing, and DLOCK_NAMES is not set; name the lock with --name NAME")
            })?;
            text.to_string_lossy().lines().map(|line| values::name(line.as_ref(), "DLOCK_NAMES")).collect()
        } else {
            args.name.iter().map(|text| values::name(text, "--name")).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { claim, names: names?, viewing: viewing(false, &args.common, around)? })
    }
}

/// Returns the format that `words` of `acquire` contain, although they may have errors.
pub fn early_format(words: &[OsString]) -> Format {
    let after = words.windows(2).filter(|pair| pair[0] == "--format").filter_map(|pair| pair[1].to_str());
    let joined = words.iter().filter_map(|word| word.to_str()?.strip_prefix("--format="));
    after.chain(joined).last().and_then(Format::named).unwrap_or_default()
}
