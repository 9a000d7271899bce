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

/// For whom a lock is acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beneficiary {
    /// This process, which is there already.
    Process(i32),
    /// Nobody's process: for one ttl, unless it is renewed.
    Nobody,
}

/// `dlock acquire`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcquireSettings {
    /// What it has in common with `run`; the command is what others are shown.
    pub run: RunSettings,
    /// For whom.
    pub beneficiary: Beneficiary,
    /// How the claim is printed.
    pub format: Format,
}

/// `dlock release` and `dlock renew`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimSettings {
    /// The first digits of the claim, at least eight.
    pub claim: String,
    /// Locks that it is on, at least one.
    pub names: Vec<LockName>,
    /// The rest.
    pub viewing: Viewing,
}

impl AcquireSettings {
    /// Settles `args` with the environment and the configuration files.
    pub fn resolve(args: AcquireArgs, around: &Environment) -> Result<Self> {
        let beneficiary = beneficiary(args.for_pid.as_deref(), args.detach)?;
        let format = args.format.as_deref().and_then(Format::named).unwrap_or_default();
        let run_args = RunArgs {
            // What others are shown of it: its name, or how it was made.
            argv: vec![shown(beneficiary)],
            lock: args.lock,
            supersede: args.supersede,
            no_nest: true,
            label: args.label,
            common: args.common,
            ..RunArgs::default()
        };
        if run_args.lock.name.is_empty() {
            return Err(anyhow!("--name is missing; say which lock with --name NAME")
                .hint("see dlock acquire --help"));
        }
        let run = RunSettings::resolve(&run_args, around)?;
        if run.busy_exit_code == 0 {
            bail!("-E 0 would have a script go on without the lock; choose 1 to 255, or leave it out");
        }
        Ok(Self { run, beneficiary, format })
    }
}

fn beneficiary(pid: Option<&OsStr>, detach: bool) -> Result<Beneficiary> {
    match (pid, detach) {
        (Some(_), true) => Err(anyhow!("--for-pid and --detach are both given; choose one of them")),
        (None, true) => Ok(Beneficiary::Nobody),
        (None, false) => Err(anyhow!("--for-pid or --detach is missing; say what the lock is for")
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

/// The first word of the command line of the process, or that nobody's process has the lock.
fn shown(beneficiary: Beneficiary) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let Beneficiary::Process(pid) = beneficiary else { return "dlock acquire".into() };
    let first_word = |line: Vec<u8>| line.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok().and_then(first_word);
    words.filter(|word| !word.is_empty()).map_or_else(|| "dlock acquire".into(), OsString::from_vec)
}

impl ClaimSettings {
    /// Settles `args` with the environment and the configuration files; claim and names may come from the variables that
    /// `acquire` printed.
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
                anyhow!("--name is missing, and DLOCK_NAMES is not set; say which lock with --name NAME")
            })?;
            text.to_string_lossy().lines().map(|line| values::name(line.as_ref(), "DLOCK_NAMES")).collect()
        } else {
            args.name.iter().map(|text| values::name(text, "--name")).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { claim, names: names?, viewing: viewing(false, &args.common, around)? })
    }
}

/// The format that `words` of `acquire` ask for, where they cannot all be understood.
pub fn early_format(words: &[OsString]) -> Format {
    let after = words.windows(2).filter(|pair| pair[0] == "--format").filter_map(|pair| pair[1].to_str());
    let joined = words.iter().filter_map(|word| word.to_str()?.strip_prefix("--format="));
    after.chain(joined).last().and_then(Format::named).unwrap_or_default()
}
