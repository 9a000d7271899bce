//! The process and the directory of a server.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The time limit for a server to listen.
const START: Duration = Duration::from_secs(60);

/// Returns a port on which no process listens now. It is below the ephemeral range, so that no outgoing connection
/// takes it before the server does. Each port is used once in a process.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = u64::from(std::process::id()).wrapping_mul(997);
    loop {
        let n = base.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 22_000;
        let port = 10_000 + u16::try_from(n).expect("small");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Creates a directory for a server of this process. The server removes it. If this process ends first, another process
/// removes it.
pub(crate) fn shared_folder(name: &str) -> PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let root = ROOT.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("dlock-servers-{}", std::process::id()));
        fs::create_dir(&root).expect("a new directory");
        remove_after_us(&root);
        root
    });
    let folder = root.join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&folder).expect("a new directory");
    folder
}

/// Makes another process remove `folder` after this process has ended, however it ends.
#[expect(clippy::zombie_processes, reason = "it outlives this process")]
fn remove_after_us(folder: &Path) {
    // The servers are killed at that moment, and may still write.
    let script = "cat >/dev/null; until rm -rf \"$0\" 2>/dev/null; do sleep 0.1; done";
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", script]).arg(folder).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
    // The pipe closes with this process.
    std::mem::forget(child.stdin.take());
}

/// Returns the reason if one of these programs is not installed.
pub(super) fn lacking(programs: &[&str], package: &str) -> Option<String> {
    let lacks = programs.iter().find(|program| Command::new(program).arg("--version").output().is_err());
    lacks.map(|program| format!("{program} is not installed (Debian: {package})"))
}

pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    child: Mutex<Option<Child>>,
}

/// Spawns `command` in a thread that never ends. The kernel takes the death of the spawning thread for the parent's,
/// and the server would die with it.
fn spawn(command: Command) -> Child {
    type Order = (Command, Sender<std::io::Result<Child>>);
    static NURSERY: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, received) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in received {
                // The receiver is gone only if the test has ended.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = channel();
    nursery.lock().expect("not poisoned").send((command, answer)).expect("the nursery lives");
    answered.recv().expect("the nursery lives").expect("the server starts")
}

/// Returns `program` as a command that is killed when this process ends.
pub(crate) fn dying_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

impl Server {
    /// Starts the command that `command` returns, in `folder`, and waits until it listens on `port`. A restart calls
    /// `command` again.
    pub(crate) fn start(
        folder: PathBuf,
        port: u16,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        let server = Self { folder, port, command: Box::new(command), child: Mutex::new(None) };
        server.up();
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn pid(&self) -> Pid {
        let child = self.child.lock().expect("not poisoned");
        Pid::from_child(child.as_ref().expect("running"))
    }

    /// Returns the log of the server for the message of a failure.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts it again after [`Server::down`].
    pub(crate) fn up(&self) {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).expect("a log");
        let mut command = (self.command)();
        command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log);
        *self.child.lock().expect("not poisoned") = Some(spawn(command));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let begun = Instant::now();
        // Another process may have taken the port meanwhile and may be the one that listens.
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() || self.has_ended() {
            assert!(!self.has_ended(), "the server ended: {}", self.log());
            assert!(begun.elapsed() < START, "nothing listens on {address}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns whether it has ended by itself.
    fn has_ended(&self) -> bool {
        let mut child = self.child.lock().expect("not poisoned");
        child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Returns whether it was started and not taken down.
    pub(crate) fn is_up(&self) -> bool {
        self.child.lock().expect("not poisoned").is_some()
    }

    /// Sends SIGKILL.
    pub(crate) fn down(&self) {
        if let Some(mut child) = self.child.lock().expect("not poisoned").take() {
            child.kill().expect("kills");
            child.wait().expect("waits");
        }
    }

    /// Sends SIGKILL and starts it again with its data.
    pub(crate) fn restart(&self) {
        self.down();
        self.up();
    }

    /// Freezes it: it accepts connections and answers nothing.
    pub(crate) fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).expect("stops");
        // A thread that waits for a processor stops only when it gets one.
        let begun = Instant::now();
        while !self.is_stopped() {
            assert!(begun.elapsed() < START, "the server does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        fs::read_dir(tasks).expect("threads").flatten().all(stopped)
    }

    pub(crate) fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).expect("continues");
    }
}

#[expect(clippy::print_stderr, reason = "it shows beside the test that failed of it")]
impl Drop for Server {
    fn drop(&mut self) {
        if self.has_ended() {
            let child = self.child.lock().expect("not poisoned").take();
            eprintln!("the server on port {} ended by itself, {child:?}: {}", self.port, self.log());
        }
        self.down();
        // Leftovers do not disturb other tests.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
