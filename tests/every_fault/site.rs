//! The place of one run: its directory, its lock, and the programs that are started there.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::enumeration::command;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::redis;
use crate::shape::{Event, Shape, Verb};
use crate::support::program::dlock;
use crate::support::terminal;
use crate::support::test_env::MARK;
use crate::sys::{self, Program};
use crate::user::PROMPT;

/// An interactive shell without line editing.
const SHELL: [&str; 5] = ["/bin/bash", "--norc", "--noprofile", "--noediting", "-i"];

/// Returns the variable of every process of the point: that of the environment of this worker.
pub(crate) fn mark() -> String {
    format!("{MARK}={}", command::variable(MARK))
}

/// A directory and a lock for one run.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    shape: &'static Shape,
    redis: u16,
    proxy: Option<Proxy>,
    /// Both sides of the terminal of the shell, if the run is a job.
    terminal: Option<(File, OwnedFd)>,
}

impl Site {
    /// Creates a site in the directory of this worker's environment, and on the Redis at that port.
    pub(crate) fn new(folder: &Path, shape: &'static Shape, redis: u16) -> Self {
        fs::create_dir(folder.join("tmp")).expect("a directory for what is temporary");
        let proxy = (shape.event == Event::Silence).then(|| Proxy::to(redis));
        let terminal = shape.is_job().then(terminal::sides);
        if let Some((user, _)) = &terminal {
            rustix::io::ioctl_fionbio(user, true).expect("a screen without a reader");
        }
        Self { folder: folder.to_owned(), shape, redis, proxy, terminal }
    }

    /// Returns the lock's name, which no other site has.
    pub(crate) fn name(&self) -> String {
        if self.shape.on_redis {
            self.folder.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned()
        } else {
            "a".to_owned()
        }
    }

    fn endpoint(&self, port: u16) -> String {
        if self.shape.on_redis {
            format!("redis://127.0.0.1:{port}")
        } else {
            self.folder.join("locks").to_str().expect("UTF-8").to_owned()
        }
    }

    /// Starts the script for which the lock is taken.
    pub(crate) fn script(&self) -> i32 {
        let words = command::words(&self.folder, "run", self.shape.command);
        self.start("script", &[], &words, false)
    }

    /// Tells the script whether it has the lock.
    pub(crate) fn tell_script(&self, holds: bool) {
        let told = self.folder.join("gate.told");
        if !told.exists() {
            // The file is complete when it appears.
            let draft = self.folder.join("gate.draft");
            fs::write(&draft, if holds { "held" } else { "refused" }).expect("a gate");
            fs::rename(&draft, &told).expect("a gate");
        }
    }

    /// Starts the run into which the fault is injected; `script` is the process for which it takes the lock.
    pub(crate) fn run(&self, ttl: &str, script: Option<i32>) -> i32 {
        if self.shape.careless {
            return self.careless("run", self.shape.command, true);
        }
        let port = self.proxy.as_ref().map_or(self.redis, Proxy::port);
        let report = self.report();
        let report = report.to_str().expect("UTF-8");
        let options =
            self.shape.options.iter().map(|option| if *option == "REPORT" { report } else { option });
        let options: Vec<&str> = ["--ttl", ttl].into_iter().chain(options).collect();
        let endpoint = self.endpoint(port);
        let name = self.name();
        let verb = match (self.shape.verb, script) {
            (Verb::Acquire, Some(script)) => {
                let script = script.to_string();
                let words =
                    [dlock(), "acquire", "--endpoint", &endpoint, "--name", &name, "--for-pid", &script];
                return self.start("run", &[&words[..], &options].concat(), &[], true);
            }
            (Verb::Elect, _) => "elect",
            _ => "run",
        };
        self.dlock("run", verb, &endpoint, &options, self.shape.command, true)
    }

    /// Starts another run on the same lock.
    pub(crate) fn other(&self, who: &str, manner: &str) -> i32 {
        if self.shape.careless {
            return self.careless(who, manner, false);
        }
        self.dlock(who, "run", &self.endpoint(self.redis), &["--ttl", "5s"], manner, false)
    }

    fn dlock(
        &self,
        who: &str,
        verb: &str,
        endpoint: &str,
        options: &[&str],
        manner: &str,
        traced: bool,
    ) -> i32 {
        let name = self.name();
        let words = [&[dlock(), verb, "--endpoint", endpoint, "--name", &name], options, &["--"]].concat();
        self.start(who, &words, &command::words(&self.folder, who, manner), traced)
    }

    fn careless(&self, who: &str, manner: &str, traced: bool) -> i32 {
        let file = self.folder.join("locks/a");
        let words = ["/usr/bin/flock", "-o", file.to_str().expect("UTF-8")];
        self.start(who, &words, &command::words(&self.folder, who, manner), traced)
    }

    /// Writes the output of `dlock status --json` to a file of that name.
    pub(crate) fn status(&self) -> i32 {
        let name = self.name();
        self.start(
            "status",
            &[dlock(), "status", "--endpoint", &self.endpoint(self.redis), "--json", &name],
            &[],
            false,
        )
    }

    /// Returns the keyboard and the screen of the shell.
    pub(crate) fn user(&self) -> Option<&File> {
        self.terminal.as_ref().map(|(user, _)| user)
    }

    fn start(&self, who: &str, words: &[&str], more: &[String], traced: bool) -> i32 {
        let words: Vec<&str> = words.iter().copied().chain(more.iter().map(String::as_str)).collect();
        if let (true, Some((user, side))) = (traced, &self.terminal) {
            // Typed ahead: the shell reads it when it is ready.
            let line = format!("'{}' 2>>{who}.err >>{who}.out\n", words.join("' '"));
            let mut user: &File = user;
            user.write_all(line.as_bytes()).expect("a terminal that takes keys");
            let stream = || side.try_clone().expect("a descriptor");
            return self.execute(&SHELL, [stream(), stream(), stream()], true);
        }
        let file = |kind: &str| -> OwnedFd {
            let file =
                File::options().create(true).append(true).open(self.folder.join(format!("{who}.{kind}")));
            file.expect("a file for output").into()
        };
        let nothing = File::open("/dev/null").expect("nothing to read").into();
        self.execute(&words, [nothing, file("out"), file("err")], traced)
    }

    fn execute(&self, words: &[&str], streams: [OwnedFd; 3], traced: bool) -> i32 {
        let c = |text: &str| CString::new(text).expect("no zero");
        let folder = self.folder.to_str().expect("UTF-8");
        let set = |name: &str, value: &str| c(&format!("{name}={value}"));
        let program = Program {
            words: words.iter().copied().map(c).collect(),
            environment: vec![
                set("PATH", "/usr/bin:/bin"),
                set("HOME", folder),
                set("TMPDIR", &format!("{folder}/tmp")),
                set("LANG", "C.UTF-8"),
                set("PS1", PROMPT),
                set("HISTFILE", ""),
                c(&mark()),
            ],
            folder: c(folder),
            streams,
        };
        sys::start(&program, traced).expect("a process")
    }

    /// Removes the lock file under its holder.
    pub(crate) fn remove_lock(&self) {
        // It may not exist yet.
        let _ = fs::remove_file(self.folder.join("locks/a"));
    }

    /// Deletes the key at the service.
    pub(crate) fn delete_key(&self) {
        redis::raw(self.redis, &["DEL", &format!("dlock:{}", self.name())]);
    }

    /// Makes the service fall silent.
    pub(crate) fn silence(&self) {
        self.proxy.iter().for_each(|proxy| proxy.set(Conduct::Hole));
    }

    /// Lets a command at its gate end.
    pub(crate) fn open_gate(&self, who: &str) {
        self.write(&format!("gate.{who}"), "");
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.folder.join("report.json")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Returns what the commands have noted so far.
    pub(crate) fn log(&self) -> Vec<String> {
        command::log(&self.folder)
    }

    pub(crate) fn has_noted(&self, what: &str) -> bool {
        self.times_noted(what) > 0
    }

    pub(crate) fn times_noted(&self, what: &str) -> usize {
        command::times_noted(&self.folder, what)
    }

    /// Returns the names of the remaining files, without those of the tests.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut found: Vec<String> = ["locks", "tmp", "."]
            .iter()
            .flat_map(|sub| fs::read_dir(self.folder.join(sub)).into_iter().flatten().flatten())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| {
                let own = ["locks", "tmp", "log", "tree", "report.json"];
                !own.contains(&name.as_str()) && ![".out", ".err"].iter().any(|end| name.ends_with(end))
            })
            .filter(|name| !name.starts_with("gate."))
            .collect();
        found.sort();
        found
    }
}
