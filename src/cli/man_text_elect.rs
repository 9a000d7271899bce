//! What the manual says of elections.

use super::man_text::Piece::{Code, Text};
use super::man_text::Section;

/// Of `dlock-elect(1)`.
pub const ELECT: &[Section] = &[
    (
        "DESCRIPTION",
        &[
            Text(
                "Campaigns for the leadership NAME, runs COMMAND while it leads, and resigns when COMMAND has ended. At \
                  most one candidate leads at any time; the others wait in order of arrival. It is dlock-run(1) with an \
                  exclusive claim on the lock of that name: its options, signals, environment and exit status are the \
                  same, and what ends a command that loses its lock ends one that loses its leadership.",
            ),
            Text(
                "The leader's value is the text that others see with dlock leader; dlock proclaim changes it. \
                  DLOCK_TOKEN is the number of the term: it grows from leader to leader. Hand it to what the command \
                  writes to, and let that refuse lower ones.",
            ),
            Text(
                "With --forever dlock stands again, at the end of the queue, when the command has ended, whatever its \
                  status, when the leadership was lost or broken (dlock break), and when --max-run ended it: at once \
                  after a term of 10 s or more, else after 1 s, and twice as long after each further term that was \
                  shorter, up to 60 s. SIGTERM, SIGINT, SIGHUP and SIGQUIT, and Ctrl-C, make it the last term. \
                  dlock also ends if it gave up waiting (--wait, --try), if the command cannot be executed, if \
                  something of it is left that cannot be ended, and if one of dlock's own processes is killed. A \
                  service that was there and is gone is waited for. --report and --metrics-file tell of the last \
                  term that ended.",
            ),
            Text(
                "--shared, --slots, several names and --label are usage errors, as is --once-per with --forever. Inside a \
                  command that holds the same lock it runs as a nested run does, and has no value of its own.",
            ),
            Text(
                "With --prefix '' candidates of other programs stand in the same queue: those that are told of in the \
                  sections of the services in dlock-run(1).",
            ),
        ],
    ),
    (
        "EXAMPLES",
        &[Code(
            "dlock elect --name frontend --value \"$(hostname):8080\" --forever -- ./serve\n\
                  dlock leader frontend --follow",
        )],
    ),
    ("SEE ALSO", &[Text("dlock-run(1), dlock-proclaim(1), dlock-leader(1)")]),
];

/// Of `dlock-proclaim(1)`.
pub const PROCLAIM: &[Section] = &[(
    "DESCRIPTION",
    &[
        Text(
            "Changes the value of the leader, from inside the command of dlock elect: it reads DLOCK_CLAIM and \
              DLOCK_NAMES, and takes the connection options, which must be those of dlock elect (best set in the \
              environment of both). In the command of dlock run it changes the label. A value has at most 200 bytes \
              and no control characters.",
        ),
        Text(
            "The value is written only if the claim leads at that moment. The exit status is 0 when it was written; 64 \
              outside of a claim or with other connection options, 76 if the claim does not lead, not any more or not \
              yet, and nothing was written. After 69 it may have been written; the same value again does no harm.",
        ),
    ],
)];

/// Of `dlock-leader(1)`.
pub const LEADER: &[Section] = &[
    (
        "DESCRIPTION",
        &[
            Text(
                "Prints the value of the present leader of the election NAME: what dlock elect said with --value, or \
                  dlock proclaim since. If nobody leads it prints nothing. The exit status is 0 in both cases. Whoever \
                  holds the lock NAME alone leads; the value is the label, and empty for a hold without one. Control \
                  characters of other programs' values are shown escaped.",
            ),
            Text(
                "With --follow it goes on and prints a line for each change of the leader or of its value, in order, \
                  until interrupted; that nobody leads is shown with --json alone. On etcd every change is shown, also \
                  those that come faster than they can be read; only after a lost connection the newest is what comes \
                  first. The other services tell that something has changed, and what is shown then is the newest: a \
                  value that was replaced at once may be left out. ZooKeeper, Redis, PostgreSQL, MySQL and the file \
                  system tell at once; where they cannot, the service is asked every 500 ms.",
            ),
            Text(
                "A service that cannot be reached at the start is an error, 69 or 77; one that is lost later is tried \
                  again each second.",
            ),
        ],
    ),
    (
        "JSON",
        &[Text(
            "One object, or null if nobody leads: the leader's entry as in dlock-status(1), and value, a text. The token \
              is the number of the term; it can come a moment after the leader, as a line of its own.",
        )],
    ),
    ("SEE ALSO", &[Text("dlock-elect(1), dlock-proclaim(1), dlock-watch(1)")]),
];
