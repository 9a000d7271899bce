//! Recipes over ssh, with a server of the test's own.

use std::net::TcpListener;
use std::path::Path;

use rustix::process::Signal;

use crate::page::{RecipeEnv, is_installed};
use crate::support::Running;
use crate::support::wait::until_true;

/// A server on a port of this host, for the user that runs the tests.
struct Server {
    running: Running,
}

impl Server {
    /// Starts one, and puts a client in the directory's `/usr/local/bin` that takes every host for the server. Returns
    /// `None` with a message if that is impossible.
    fn start(place: &RecipeEnv) -> Option<Self> {
        if !["sshd", "ssh", "ssh-keygen"].into_iter().all(is_installed) {
            return None;
        }
        if rustix::process::geteuid().is_root() {
            // The directory to which a server started by root confines its children.
            std::fs::create_dir_all("/run/sshd").expect("a directory of root's");
        }
        let env = &place.env;
        let root = env.root().display().to_string();
        for key in ["host", "user"] {
            let mut make = place.command("ssh-keygen");
            env.finish(make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(env.path(key))).silently(0);
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        // The environment of a job.
        let dressed = place.command("true");
        let around: Vec<String> = dressed
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
            .map(|(name, value)| format!("\"{name}={value}\""))
            .collect();
        let config = env.write(
            "sshd_config",
            &format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {root}/host\nAuthorizedKeysFile {root}/user.pub\nPidFile none\n\
                 StrictModes no\nUsePAM no\nPermitRootLogin yes\nSetEnv {}\n",
                around.join(" ")
            ),
        );
        env.write(
            "ssh_config",
            &format!(
                "Host *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {root}/user\nIdentitiesOnly yes\n\
                 StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
            ),
        );
        let client = format!("#!/bin/sh\nexec /usr/bin/ssh -F {root}/ssh_config \"$@\"\n");
        place.program("bin/ssh", &client);
        let program = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|path| Path::new(path).exists());
        // The server executes itself again by that path.
        let mut server = place.command(program.expect("a server where Debian has it"));
        let running = env.start(server.args(["-D", "-e", "-f"]).arg(config));
        until_true("a server that listens", || running.err_so_far().contains("Server listening"));
        Some(Self { running })
    }

    /// Waits until only the server itself is left of its processes.
    fn await_no_connection(&self, place: &RecipeEnv) {
        until_true("the end of the connection", || {
            place
                .env
                .processes()
                .iter()
                .all(|process| process.name != "sshd" || process.pid == self.running.pid())
        });
    }

    #[track_caller]
    fn assert_over(self, place: &RecipeEnv, lock: &str) {
        until_true("the end of everything but the server", || {
            place.env.processes().iter().all(|process| process.pid == self.running.pid())
        });
        place.env.assert_free(lock);
        self.running.signal(Signal::TERM);
        self.running.finish();
        place.env.await_no_process();
    }
}

#[test]
fn without_a_terminal_a_command_outlives_its_connection() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("ssh");
    let Some(server) = Server::start(&place) else { return };
    place.endless("deploy");
    let client = place.start_words(&recipe);
    let job = place.await_up("deploy", 1)[0];
    client.signal(Signal::KILL);
    client.finish();
    server.await_no_connection(&place);
    assert!(crate::support::process::is_alive(job));
    place.env.assert_busy("deploy");
    let mut broken = place.command("dlock");
    place.env.finish(broken.args(["break", "deploy", "--yes"])).silently(0);
    server.assert_over(&place, "deploy");
}

#[test]
fn with_a_terminal_a_command_ends_with_its_connection() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("ssh-terminal");
    let Some(server) = Server::start(&place) else { return };
    place.endless("deploy");
    let client = place.start_words(&recipe);
    place.await_up("deploy", 1);
    client.signal(Signal::KILL);
    client.finish();
    server.assert_over(&place, "deploy");
}
