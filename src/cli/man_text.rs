//! What the manual says beyond the options.

/// A piece of a section.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// A paragraph.
    Text(&'static str),
    /// A term and what it means.
    Term(&'static str, &'static str),
    /// Lines to type.
    Code(&'static str),
}

use super::man_text_systemd::SYSTEMD;
use Piece::{Code, Term, Text};

/// A heading and what follows it.
pub type Section = (&'static str, &'static [Piece]);

/// Of `dlock(1)`.
pub const MAIN: &[Section] = &[
    (
        "DESCRIPTION",
        &[
            Text(
                "dlock puts a distributed lock in front of a command. It acquires the lock, starts the command, \
                  keeps the lock while the command runs, and releases it when the command has ended. If the lock \
                  is lost, the command is ended before anybody else can have the lock.",
            ),
            Text(
                "A claim is one entry in the queue of a lock: it waits, then holds, then is gone. Claims hold in \
                  order of arrival. Names of locks are any text without control characters and without white space at \
                  its ends, of 1 to 200 bytes of UTF-8. Durations are written 500ms, 1.5s, 30s, 5m, 1h30m, 1h 30m, 2d or \
                  1w, also with systemd's longer words (5min, 30sec, 2hours); a bare number is seconds.",
            ),
            Text(
                "Options follow the command: dlock run --name NAME, not dlock --name NAME run. The last one counts \
                  where an option is given twice.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[Text(
            "0 on success, else one of dlock's own codes, listed in dlock-run(1). A usage error is \
                           64. Output that cannot be written is 73. When the reader of its output has gone, dlock dies of SIGPIPE (141 in a shell) and \
                           says nothing.",
        )],
    ),
    (
        "FILES",
        &[Text(
            "The configuration files and lock directories are listed in dlock-run(1). dlock man --dir DIR writes all \
              manual pages into DIR, and makes it if it is not there.",
        )],
    ),
    ("EXAMPLES", &[Code("dlock run --name nightly -- ./backup.sh\ndlock status nightly\ndlock list --json")]),
    (
        "SEE ALSO",
        &[Text(
            "dlock-run(1), dlock-elect(1), dlock-status(1), dlock-list(1), dlock-watch(1), dlock-break(1), flock(1), \
                        timeout(1)",
        )],
    ),
];

/// Of `dlock-run(1)`, before its exit status.
pub const RUN: &[Section] = &[(
    "DESCRIPTION",
    &[
        Text(
            "Acquires the lock NAME, runs COMMAND while it holds it, and exits with the command's own status. \
              Standard input, output, error, the terminal, the working directory, umask, limits and ignored \
              signals are the command's as they were dlock's. dlock itself writes nothing to standard output.",
        ),
        Text("Options end at the first operand, so that the command's own options need no --."),
        Text(
            "With several names, at most 64, all are acquired together or none is, in one mode and without \
              deadlock among dlocks that name the same ones.",
        ),
        Text(
            "The backend file locks on one host, together with flock(1) on the same file; the others lock between hosts. \
              Each service has a section of its own below.",
        ),
        Text(
            "The lock is released when the command has ended; with --whole-tree, when every descendant has. When \
              dlock ends the command it ends every descendant, also those in other process groups and sessions.",
        ),
    ],
)];

/// Of `dlock-run(1)`, after its exit status.
pub const RUN_AFTER: &[Section] = &[
    ("ENVIRONMENT OF THE COMMAND", ENVIRONMENT_OF_COMMAND),
    ("ENVIRONMENT", ENVIRONMENT),
    ("SIGNALS", SIGNALS),
    ("NESTING", NESTING),
    ("SYSTEMD", SYSTEMD),
    ("FILES", FILES),
    ("WHAT WAS CHOSEN", CHOICES),
    (
        "EXAMPLES",
        &[
            Text("Skip this run if the last one still goes on, and let cron mail nothing about it:"),
            Code("dlock run --name backup --try -E 0 -- ./backup.sh"),
            Text("Wait for the lock, but at most ten minutes:"),
            Code("dlock run --name deploy --wait 10m -- ./deploy.sh production"),
            Text("At most three at once, with a shell's syntax:"),
            Code("dlock run --name render --slots 3 -c 'render < in.txt > out.png'"),
            Text("Once a day on whichever host comes first:"),
            Code("dlock run --name report --try -E 0 --once-per 20h -- ./report.sh"),
        ],
    ),
    ("SEE ALSO", &[Text("dlock(1), dlock-status(1), dlock-break(1), flock(1), timeout(1)")]),
];

const ENVIRONMENT_OF_COMMAND: &[Piece] = &[
    Text(
        "These tell the command about its hold. dlock never takes them as configuration. Those of an outer run are \
          not passed on, but for DLOCK_HELD.",
    ),
    Term("DLOCK_NAME", "The name of the lock, the first with several."),
    Term("DLOCK_CLAIM", "The claim, 32 hexadecimal digits."),
    Term(
        "DLOCK_TOKEN",
        "The fencing token, a decimal number greater than that of every claim that had to end \
                         before this one. Hand it to what the command writes to, and let that refuse lower ones. A service that \
                         loses its data, fails over to an asynchronous replica or is restored from a backup may \
                         give lower ones again; dlock doctor says what that means for each.",
    ),
    Term("DLOCK_MODE", "exclusive, shared or slots:N."),
    Term("DLOCK_SLOT", "With --slots: which slot, from 1."),
    Term("DLOCK_NAMES, DLOCK_TOKENS", "All names and all tokens, one a line, in the order given."),
    Term("DLOCK_HELD", "What is held around the command; nested dlocks read it."),
];

const ENVIRONMENT: &[Piece] = &[
    Text(
        "A flag goes over a variable, a variable over the configuration files. An empty variable says nothing, \
          except DLOCK_PREFIX. Other variables that start with DLOCK_ are ignored. A flag that the chosen backend has no use \
         for (--user with file) is 64; variables and files may speak of other services.",
    ),
    Term("DLOCK_BACKEND, DLOCK_ENDPOINT, DLOCK_PREFIX", "As --backend, --endpoint and --prefix."),
    Term(
        "DLOCK_USER, DLOCK_PASSWORD_FILE, DLOCK_CACERT, DLOCK_CERT, DLOCK_KEY, DLOCK_TLS_SERVER_NAME",
        "As --user, --password-file, --cacert, --cert, --key and --tls-server-name.",
    ),
    Term(
        "DLOCK_PASSWORD",
        "The password itself. There is no option for it: arguments can be read by every user.",
    ),
    Term("DLOCK_MAX_TTL, DLOCK_ZK_LAYOUT", "As --max-ttl and --zk-layout."),
    Term("DLOCK_CONFIG, DLOCK_PROFILE", "As --config and --profile."),
    Term("DLOCK_TTL, DLOCK_GRACE, DLOCK_LOG_FORMAT", "As --ttl, --grace and --log-format."),
    Term("NO_COLOR", "If set and not empty, nothing is coloured."),
    Term("PATH", "Where COMMAND is looked up."),
    Term("NOTIFY_SOCKET", "Where the service manager listens; see SYSTEMD."),
    Term(
        "XDG_CONFIG_HOME, HOME",
        "Where the user's configuration is looked for; relative paths are ignored.",
    ),
];

const SIGNALS: &[Piece] = &[
    Text(
        "While waiting, SIGTERM, SIGINT, SIGHUP and SIGQUIT leave the queue and end dlock by that signal; the \
          command is never started afterwards. Ctrl-Z leaves the queue, and fg joins it again, at the end. Other \
          signals do nothing then.",
    ),
    Text(
        "While the command runs, every signal sent to dlock goes to the command, once; only SIGKILL and SIGSTOP \
          cannot be passed on. SIGTERM, SIGINT, SIGHUP and SIGQUIT also go to the descendants in its process \
          group, are followed by SIGCONT, and start the grace period, after which every descendant gets SIGKILL. \
          What has left the group gets SIGTERM when the command has ended. A second such signal ends them at \
          once; one within 200 ms counts as the same. The lock is kept and renewed until all of them are gone.",
    ),
    Text(
        "When dlock stops the command of itself, for --max-run, --replace, dlock break or a lease that is about to run out, \
          it sends --signal, by default SIGTERM, to the command and its process group, then SIGCONT, and SIGKILL to \
          every descendant after the grace period. What outlives the command gets SIGTERM as ever. A lock that is \
          lost already, and a process of dlock that was killed, leave no time for it: then SIGKILL comes at once.",
    ),
    Text(
        "What the terminal sends (Ctrl-C, Ctrl-Z, a hang-up) has reached the command already and is not passed \
          on, nor does it start a grace period. Ctrl-Z suspends the command; the lock stays held and renewed. The \
          SIGCONT by which a shell resumes the job is not passed on either.",
    ),
    Text(
        "While --hold-at-least keeps the lock after the command, SIGTERM, SIGINT, SIGHUP and SIGQUIT release it at \
          once; the status stays the command's.",
    ),
    Text(
        "If the command dies of a signal, dlock dies of the same, without a core of its own; as process 1 of a \
          container it exits with 128 and the signal's number instead. A signal that was ignored when dlock \
          started is ignored by dlock and the command.",
    ),
    Term(
        "A killed dlock",
        "dlock is two processes that guard each other: the one that was started, and a child of it named \
         lease-keeper. If one is killed, the other one ends the whole tree. pkill dlock finds only the first. \
         pkill -9 -f dlock kills both in one instant: the command then runs on, and the lock stays taken until \
         everything that inherited its descriptor has ended.",
    ),
    Term(
        "A stopped dlock",
        "Stopping dlock itself (SIGSTOP) ends nothing: the lease-keeper guards and renews alone. One that is \
         stopped when its turn comes starts nothing: it leaves the queue before the lease could run out, and joins \
         again at the end when it goes on. A stopped lease-keeper costs the command its life when the lease runs \
         out; while waiting it is replaced after a ttl, at the end of the queue.",
    ),
    Term(
        "An orphaned job",
        "When the shell of a stopped job dies, dlock hangs up on the job (SIGHUP, SIGCONT), as the kernel does \
         without dlock. Where nobody could resume a job, since dlock's parent is in another session or that \
         shell is gone, a stop by the terminal is undone at once.",
    ),
    Term(
        "What cannot be ended",
        "Processes that dlock may not signal, or that are still there 2 s after SIGKILL (an uninterruptible \
         sleep), are named once. dlock keeps the lock until they are gone. If the lock is lost, it names them and \
         exits with 76. Write sudo dlock run, not dlock run -- sudo.",
    ),
];

const NESTING: &[Piece] = &[
    Text(
        "dlock run --name X inside a command that already holds X, at the same service and in a mode at least as \
          strong, runs at once under the outer hold, which is confirmed first. It neither renews nor releases it. \
          Exclusive is as strong as exclusive and shared; shared and slots:N only as themselves.",
    ),
    Text(
        "Its command sees the outer token, slot and claim, and as DLOCK_MODE the mode that was asked for. The outer \
          run does not release while a nested one goes on, also one in the background.",
    ),
    Text(
        "With several names those that are held around are taken from there, and the others are claimed. A \
          nested run in another PID namespace or of another user asks for an ordinary claim, as one does whose \
          outer hold is over, and one with --no-nest.",
    ),
    Text(
        "A wait that could never end is refused at once, with 75 or the status of -E: exclusive under an own \
          shared hold, --no-nest under an own exclusive one, or two runs that each wait for what is held around \
          the other.",
    ),
];

const FILES: &[Piece] = &[
    Term("/etc/dlock/config.toml", "Configuration for all users."),
    Term(
        "$XDG_CONFIG_HOME/dlock/config.toml, ~/.config/dlock/config.toml",
        "Configuration of the user; goes over \
         the one for all. --config names another file in its place.",
    ),
    Term(
        "/var/lib/dlock, /var/tmp/dlock-UID",
        "The lock directories of root and of other users, if --endpoint names none. The lock NAME is the file \
         NAME in it, bytes outside A-Za-z0-9._- and a leading dot written %XX; dlock never removes it, nor should \
         others. Beside it are the queue, .NAME.line, a FIFO that stays, .NAME.fifo, and one for each claim that waited.",
    ),
    Term(
        "Descriptor 192 and up",
        "The command and all that it starts inherit the open lock file, under the first free number from 192 (64 \
         below the limit of open files if that is under 256), with --slots the slot's as well. So the lock stays \
         taken even if all of dlock is killed. An ordinary end releases it whoever still has the descriptor.",
    ),
    Text(
        "A configuration file is TOML. Its keys are names of options without the leading dashes: backend, endpoint (a text \
          or a list), prefix, allow-network-fs, ttl, grace, wait, label, log-format, quiet, verbose, user, \
          password, password-file, cacert, cert, key, tls-server-name, max-ttl and zk-layout. Any other key is an error. A profile is a table [profile.NAME] \
          of the same keys, which go over those at the top of its file.",
    ),
    Code("ttl = \"20s\"\nendpoint = \"/srv/locks\"\n\n[profile.ci]\nwait = \"15m\"\nlabel = \"ci\""),
    Text(
        "A configuration file must belong to root or the user and be writable by nobody else. With a password in \
          it, it must not be readable by others: neither by a group, unless it belongs to root, nor by everybody.",
    ),
];

const CHOICES: &[Piece] = &[
    Text("Where a user of flock(1) or timeout(1) might wonder:"),
    Term(
        "--try and a configured wait",
        "--try on the command line goes over wait in a file; together with --wait \
         on the command line it is a usage error.",
    ),
    Term(
        "Zero",
        "--wait 0 is --try. --max-run 0, --once-per 0 and --hold-at-least 0 are off, as if they were not given.",
    ),
    Term(
        "--once-per with several names",
        "Every one of them must have had a recent success. What cannot be learnt is no reason to skip.",
    ),
    Term(
        "Status after a grace period",
        "When dlock was told to end and the command ended within the grace period, or by SIGKILL after it, the \
         status is the command's: a command that exits 0 on SIGTERM makes dlock exit 0. The report says signal.",
    ),
    Term(
        "Status after the command",
        "If dlock's lease-keeper is killed after the command has ended, the status is still the command's, with a \
         warning. If it is killed while waiting, dlock exits with 71, and the command is not started.",
    ),
    Term(
        "--replace",
        "Waiters that said --supersede or --replace and came earlier leave as superseded. A holder that said --replace is \
         asked to end, as by dlock break: its command gets --signal and the grace period, dlock exits with 76 and names \
         who replaced it, and the newcomer starts when the old tree is gone. A holder that did not say so is waited \
         for. One that has its turn and has not started its command yet leaves as superseded. A plain waiter between \
         the two goes first. Not with --try.",
    ),
    Term("A waiter that is broken", "exits as busy, with 75 or the status of -E; a holder with 76."),
    Term(
        "--max-run",
        "Counts from the hold, also while nested runs or, with --whole-tree, descendants outlive the command; it \
         ends those with 124. It also ends --hold-at-least, with the command's status.",
    ),
    Term("Names", "At most 64 at once, none twice; else it is a usage error."),
    Term(
        "Failures",
        "are one line on standard error: dlock, what failed and why, and behind a semicolon what to do. --quiet \
         leaves out those of a busy lock only.",
    ),
    Term(
        "The pid shown to others",
        "is that of the dlock process which was started, so that it can be signalled.",
    ),
    Term(
        "--report and --metrics-file",
        "A link is followed and stays. A file that is replaced keeps its mode; the \
         metrics get mode 0644. A pipe must have a reader when dlock ends, and room, or it is not written, which \
         is a warning. /dev/stdout, /dev/stderr and /dev/fd/N are written to, also if they lead to a \
         file. With /dev/stdout or /dev/fd/1 dlock keeps its standard output open until it ends; otherwise only \
         the command has it.",
    ),
    Term("--metrics-file", "The time of the last success is taken over from the old file when a run fails."),
    Term(
        "Unreadable configuration",
        "A configuration file that exists and cannot be read is an error, since \
         without it dlock could take another lock than the rest of the fleet. --config /dev/null means no user \
         configuration. A user's file in a directory that the user may not enter counts as none: HOME is another's.",
    ),
    Term(
        "Users",
        "The user shown to others is the one of /etc/passwd for the effective uid, or the uid as a \
         number.",
    ),
    Term(
        "JSON messages",
        "--log-format json does not change how errors on the command line itself are written, \
         unless it was given before them or by DLOCK_LOG_FORMAT.",
    ),
];
