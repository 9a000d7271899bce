//! What the manual says of the commands that look at locks and services, and of break.

use super::man_text::Piece::Text;
use super::man_text::Section;

/// Of `dlock-status(1)`.
pub const STATUS: &[Section] = &[
    (
        "DESCRIPTION",
        &[
            Text(
                "Shows the holders and the waiters of each lock in order: the first digits of the claim, state, mode, \
                  user and host, pid, since when, command and label. Without a NAME it shows all locks that have \
                  holders or waiters. Behind the name stands where it looked.",
            ),
            Text(
                "With --wide the whole claim, the time to live and the token come, too, and nothing is cut. Otherwise \
                  what does not fit the terminal is cut, label and command first, and left out at last; claim, state \
                  and pid always show.",
            ),
            Text(
                "Asking changes nothing, and makes no lock directory: of one that is not there it says that nobody \
                  has locked there yet. Other people's texts are shown with control characters escaped.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[Text(
            "0 whatever it found. With --exit-code 75 if a lock is held or waited for, and 0 if it is free; of several \
                locks, 75 if any of them is. 69 and 77 as with run if the service cannot be asked, and 73 if standard \
                output cannot be written.",
        )],
    ),
    JSON,
];

/// Of `dlock-list(1)`.
pub const LIST: &[Section] = &[
    (
        "DESCRIPTION",
        &[Text(
            "Lists the locks that have holders or waiters, sorted by name, a row for each claim, as dlock-status(1) \
                shows them. Without any it says on standard error where it looked, but for --quiet, and exits 0.",
        )],
    ),
    JSON,
];

/// Of `dlock-watch(1)`.
pub const WATCH: &[Section] = &[
    (
        "DESCRIPTION",
        &[Text(
            "Shows the queue of a lock, and again after each change noticed, until interrupted. A service that \
                cannot be reached at the start is an error; one that is lost later is tried again each second. In \
                dlock watch NAME | head -1 watch ends, by SIGPIPE, with the first change after head has gone.",
        )],
    ),
    JSON,
];

/// Of `dlock-break(1)`.
pub const BREAK: &[Section] = &[(
    "DESCRIPTION",
    &[
        Text(
            "Ends claims of others: the one that --claim says, all with --all, and else the only one there is, be it a \
              waiter's. The holder is asked: it ends its command, leaves, says who asked, and exits 76; only then does the next one start. A holder that does not answer is gone with its ttl. With \
              --force the entry is removed at once, and two commands may overlap.",
        ),
        Text(
            "The claims are shown and a question is asked on the terminal; without one --yes is needed. With --all \
              waiters go before holders.",
        ),
        Text(
            "Entries of other programs (etcdctl, redis-py, Redlock clients, Curator, kazoo) are shown with claims of \
              their own: what names the entry at the service, hashed. Their programs cannot be asked to end, so they \
              need --force. Exactly the entry that was seen is removed: a key of etcd by its create revision, a key \
              of Redis by its value (with Redlock at every node), a node of ZooKeeper by its path, creation and \
              version. Its program is told nothing, and goes on; end it yourself. A flock that another program has \
              on a lock file cannot be taken from it: break names the process where it can be seen, and exits 64. \
              No other program has entries in dlock's tables in PostgreSQL and MySQL.",
        ),
        Text(
            "--claim takes the first digits of the claim that status shows, at least eight. If several claims start \
              with them, it is a usage error.",
        ),
        Text(
            "Under sudo the user who called it is named, too. The exit status is 76 if there is no such claim, or it \
              is gone by then, or if nobody is there; 0 if it was found. It is 64 for entries of other programs \
              without --force, where nothing is changed then; for several claims without --claim and --all, which are \
              listed then; and where there is neither a terminal nor --yes.",
        ),
    ],
)];

const JSON: Section = (
    "JSON",
    &[
        Text(
            "For each lock {\"lock\",\"backend\",\"holders\":[...],\"waiters\":[...]}; list prints {\"locks\":[...]} \
              of these. Each entry has claim, mode (exclusive, shared, slots:N), slot, token (a decimal text), host, \
              pid, user, command (its first word, or sh -c), label, since (RFC 3339 in UTC), ttl_ms, ahead and \
              foreign; what is not known is null.",
        ),
        Text("Where several objects are printed, each is on a line of its own."),
    ],
);

/// Of `dlock-doctor(1)`.
pub const DOCTOR: &[Section] = &[
    (
        "DESCRIPTION",
        &[
            Text(
                "Tells what is configured and where each value comes from, reaches for the service, measures how \
                 long one exchange takes, and names what can cost a lock there. A warning is something wrong with \
                 the service as it is set up now; a note is a limit of this kind of service. Nothing is changed, \
                 and secrets are not shown.",
            ),
            Text(
                "It exits 0 if the service answered, whatever it found; 69 if it did not, 77 if it refused the \
                 credentials. The configuration is printed in any case.",
            ),
        ],
    ),
    (
        "JSON",
        &[Text(
            "One object: backend, files (the configuration files that were read), settings (a list of option, \
             value and source), server, reached, round_trip_ms, risks (a list of weight, warning or note, what and \
             remedy) and error. What is not known is null.",
        )],
    ),
];
