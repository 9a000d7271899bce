//! What the manual says of systemd.

use super::man_text::Piece::{self, Code, Text};

/// The section of `dlock-run(1)`.
pub const SYSTEMD: &[Piece] = &[
    Text(
        "Under a service manager that sets NOTIFY_SOCKET, dlock says while it waits at which place it is (systemctl status \
          shows it), and has the start time-out extended, so that a long wait is no failed start. It does not say that \
          the service is ready: NOTIFY_SOCKET is passed on to the command, and READY=1 is the command's to say, which \
          takes NotifyAccess=all, since the main process is dlock. With --notify-ready dlock says READY=1 itself when the \
          command starts, and NotifyAccess=main, the default of Type=notify, suffices.",
    ),
    Text("A service of which one instance runs in the whole fleet, and is restarted where it fails:"),
    Code(
        "[Unit]\n\
          Description=Scheduler, on one host at a time\n\
          After=network-online.target\n\
          \n\
          [Service]\n\
          Type=notify\n\
          Environment=DLOCK_BACKEND=etcd DLOCK_ENDPOINT=https://etcd1:2379\n\
          ExecStart=/usr/bin/dlock run --notify-ready --name scheduler -- /usr/bin/scheduler\n\
          KillMode=mixed\n\
          Restart=on-failure",
    ),
    Text(
        "KillMode=mixed sends SIGTERM to dlock alone, which passes it on and keeps the lock until the command has ended; \
          give TimeoutStopSec more than --grace. A job that runs on one host of many, once a night (the service as \
          Type=oneshot, with ExecStart=/usr/bin/dlock run --name report --try -E 0 --once-per 20h -- /usr/bin/report):",
    ),
    Code("[Timer]\nOnCalendar=*-*-* 02:00:00\nRandomizedDelaySec=5min\n\n[Install]\nWantedBy=timers.target"),
];
