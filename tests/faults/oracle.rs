//! Judges from the processes themselves whether holds overlapped. It does not trust the lock.
//!
//! Each hold's command first writes a line with its PID, token and mode. At its beginning and its end it checks whether
//! a process of another hold's tree is alive.

use std::process::Command;

use crate::support::chance::Random;
use crate::support::way::Way;
use crate::support::{TestEnv, process};

/// The command of each hold. It keeps an exclusion directory and an unprotected counter, and has a child in another
/// session that ignores TERM. `$1` is the mode. It writes each violation to `violations`. It ignores the tree of a
/// command that the enemy killed directly: dlock leaves that tree alone, like any daemon.
const SECTION: &str = r#"
echo "$$ ${DLOCK_TOKEN:-0} $1" >>holds
lives() {
    stat=$(</proc/$1/stat) 2>/dev/null || return 1
    case ${stat##*) } in Z* | X* | '') return 1 ;; esac
    tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | grep -q '^TEST_SECTION=yes$'
}
others() {
    tail -n 20 holds | while read -r pid token mode; do
        [ "$pid" = $$ ] && continue
        [ "$1$mode" = sharedshared ] && continue
        for member in $pid $(cat "tree.$pid" 2>/dev/null); do
            lives "$member" || continue
            # The check of a killed command runs in a child, which may outlive the command and see the next hold.
            grep -qx -e "$pid" -e "$$" felled || echo "$$ ($1) met $member of $pid ($mode)" >>violations
        done
    done
}
others "$1"
(trap '' TERM; exec setsid sleep 4) &
echo $! >"tree.$$"
if [ "$1" = exclusive ]; then
    mkdir section 2>/dev/null || {
        owner=$(cat section/owner 2>/dev/null)
        # A killed command left it. If its owner is alive, the holds overlap.
        [ -n "$owner" ] && lives "$owner" && echo "$$ is in the section of $owner" >>violations
    }
    echo $$ >section/owner
    read -r n <counter
    sleep "0.0$((n % 3))"
    read -r m <counter
    [ "$n" = "$m" ] || echo "$$ had its counter changed from $n to $m" >>violations
    echo $((n + 1)) >counter
    rm -rf section
else
    sleep 0.01
fi
others "$1"
kill -9 $! 2>/dev/null
wait 2>/dev/null
exit 0
"#;

/// Returns a way to hold the lock `x` at random, and its command with a section.
pub(crate) fn hold(env: &TestEnv, random: &mut Random, ttl: &str, has_shared: bool) -> (Way, Command) {
    let way = [Way::Run, Way::Run, Way::Acquire, Way::Acquire, Way::Elect, Way::Forever][random.below(6)];
    let shared = has_shared && matches!(way, Way::Run | Way::Acquire) && random.below(4) == 0;
    let mode = if shared { "shared" } else { "exclusive" };
    let mut options = vec!["-q", "--name", "x", "--ttl", ttl, "--grace", "200ms"];
    if shared {
        options.push("-s");
    }
    if random.below(6) == 0 {
        options.extend(["--wait", "200ms"]);
    }
    if way != Way::Acquire && random.below(6) == 0 {
        options.extend(["--max-run", "50ms"]);
    }
    (way, way.command(env, &options, &Oracle::words(mode)))
}

/// Reads the files of the sections.
pub(crate) struct Oracle<'a> {
    env: &'a TestEnv,
}

/// One hold that began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub(crate) pid: i32,
    pub(crate) token: u64,
    pub(crate) exclusive: bool,
}

impl<'a> Oracle<'a> {
    /// Creates the files that the sections use.
    pub(crate) fn new(env: &'a TestEnv) -> Self {
        env.write("section.sh", SECTION);
        env.write("counter", "0\n");
        env.write("holds", "");
        env.write("felled", "");
        Self { env }
    }

    /// Returns the words of a hold's command.
    pub(crate) fn words(mode: &str) -> [&str; 5] {
        ["env", "TEST_SECTION=yes", "bash", "section.sh", mode]
    }

    /// Returns the holds so far, in the order in which their commands began.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        let text = self.env.read("holds");
        let hold = |line: &str| {
            let mut words = line.split(' ');
            Some(Hold {
                pid: words.next()?.parse().ok()?,
                token: words.next()?.parse().ok()?,
                exclusive: words.next()? == "exclusive",
            })
        };
        text.lines().filter_map(hold).collect()
    }

    /// Returns the violations that the commands have found.
    pub(crate) fn violations(&self) -> String {
        self.env.read("violations")
    }

    /// Returns the pairs in which a token is not greater than that of a hold that had to end before it.
    pub(crate) fn disorder(&self) -> Vec<(Hold, Hold)> {
        let holds = self.holds();
        let mut wrong = Vec::new();
        let mut last_exclusive: Option<Hold> = None;
        let mut highest: Option<Hold> = None;
        for hold in holds {
            let before = if hold.exclusive { &highest } else { &last_exclusive };
            if let Some(before) = before.as_ref().filter(|b| b.token >= hold.token) {
                wrong.push((before.clone(), hold.clone()));
            }
            if highest.as_ref().is_none_or(|h| h.token < hold.token) {
                highest = Some(hold.clone());
            }
            if hold.exclusive {
                last_exclusive = Some(hold);
            }
        }
        wrong
    }

    /// Returns two exclusive commands that are alive at the same instant.
    pub(crate) fn overlap(&self) -> Option<(i32, i32)> {
        let holds = self.holds();
        let recent = holds.iter().rev().take(20).filter(|h| h.exclusive).map(|h| h.pid);
        let living: Vec<i32> = recent.filter(|pid| process::is_alive(*pid)).collect();
        let pairs = living.iter().flat_map(|a| living.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b);
        // A command that is alive before and after the check of the other was alive together with it.
        pairs.into_iter().find(|(a, b)| [a, b, a].into_iter().all(|pid| process::is_alive(*pid)))
    }
}
