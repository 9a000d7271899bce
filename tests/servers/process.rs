//! A server's process and folder.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(60);

/// A port on which nothing listens at the moment. Ports below the ephemeral range, each given once in a process,
/// so that no outgoing connection takes it before the server does.
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

/// A folder for a server of this process. It goes with the server; if that is left to the end of the process, or
/// the process is killed, somebody else removes it.
pub(crate) fn shared_folder(name: &str) -> PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let root = ROOT.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("dlock-servers-{}", std::process::id()));
        fs::create_dir(&root).expect("a new folder");
        remove_after_us(&root);
        root
    });
    let folder = root.join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&folder).expect("a new folder");
    folder
}

/// Has `folder` removed when this process has ended, however it ends.
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

/// A server that runs.
pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    child: Mutex<Option<Child>>,
}

/// The processes must not die with the test thread that started them: the kernel takes the death of that thread
/// for the parent's.
fn spawn(command: Command) -> Child {
    type Order = (Command, Sender<std::io::Result<Child>>);
    static NURSERY: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, received) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in received {
                // Nobody waits only if the test was ended.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = channel();
    nursery.lock().expect("not poisoned").send((command, answer)).expect("the nursery lives");
    answered.recv().expect("the nursery lives").expect("the server starts")
}

/// `program`, as a command that is killed when this process ends.
pub(crate) fn dying_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

impl Server {
    /// Starts what `command` gives, in `folder`, and waits until it listens on `port`. The command is asked for
    /// again at each restart.
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

    /// The server's own words, for a failure's message.
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
        // Who listens may be another one, which has taken the port since it was found free.
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() || self.has_ended() {
            assert!(!self.has_ended(), "the server ended: {}", self.log());
            assert!(begun.elapsed() < START, "nothing listens on {address}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it is gone, though nobody has taken it down.
    fn has_ended(&self) -> bool {
        let mut child = self.child.lock().expect("not poisoned");
        child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Whether it was started and not taken down.
    pub(crate) fn is_up(&self) -> bool {
        self.child.lock().expect("not poisoned").is_some()
    }

    /// SIGKILL.
    pub(crate) fn down(&self) {
        if let Some(mut child) = self.child.lock().expect("not poisoned").take() {
            child.kill().expect("kills");
            child.wait().expect("waits");
        }
    }

    /// SIGKILL, and starts it again with its data.
    pub(crate) fn restart(&self) {
        self.down();
        self.up();
    }

    /// It accepts and answers nothing.
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

    /// Ends a freeze.
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
        // What is left behind is in the way of nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
