//! Judges a life: the notes of its commands against the promises, and the messages of dlock against the notes.

use std::time::Duration;

use crate::enumeration::command::overlaps;
use crate::life::{Ended, Seen, TTL_OF_OTHERS, WAIT, WORK, WORK_BEHIND};
use crate::servers::relay::fault::{Fault, Strike, TTL};
use crate::service::Service;
use crate::shape::{Company, Shape, Verb};

/// The status of a claim of a kind that does not mix with the present one.
pub(crate) const REFUSED: i32 = 64;

/// A busy machine may need this long for something that is done at once.
const SOON: Duration = Duration::from_millis(1_300);

/// dlock gives up a release that the service does not confirm after this time.
const RELEASE: Duration = Duration::from_secs(5);

/// `dlock release` waits this long for the end of the claim, after a query and a request.
const SCRIPTS_RELEASE: Duration = Duration::from_secs(30 + 5 + 5);

/// The pause before the second campaign, after a term of a second or two.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns how long an entry may remain after the end.
pub(crate) fn left_for(
    service: Service,
    shape: &Shape,
    strike: Option<Strike>,
    claim: Option<&Ended>,
) -> Duration {
    // A silent server cannot receive the release, though the service works without it. The entry there expires with
    // those of others.
    if strike.is_some_and(|strike| strike.fault == Fault::Silence) {
        return TTL_OF_OTHERS + service.adds_to_ttl();
    }
    let is_late = strike.is_some_and(|strike| strike.fault.comes_late());
    // Without a queue, the number of slots is stored beside the slots, and expires with the longest of them.
    if is_late && shape.company == Company::QueueForSlot && !service.kind.has_queue() {
        return TTL_OF_OTHERS + service.adds_to_ttl();
    }
    let has_left = claim.is_some_and(has_left) && !is_late;
    if is_outage(service, strike) || !has_left { TTL + service.adds_to_ttl() } else { SOON }
}

/// Returns whether the claim's end was confirmed.
pub(crate) fn has_left(claim: &Ended) -> bool {
    !claim.said.contains("cannot release") && !claim.said.contains("cannot leave")
}

/// Returns whether the fault may have let a lease expire. One server of several is not needed.
fn is_outage(service: Service, strike: Option<Strike>) -> bool {
    !service.bears_silence() && strike.is_some_and(|strike| strike.fault.is_outage())
}

/// A command that began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    pub(crate) who: String,
    pub(crate) at: Duration,
    pub(crate) token: u64,
    slot: u32,
    is_shared: bool,
}

/// Returns the commands in the order in which they began.
pub(crate) fn starts(log: &[String]) -> Vec<Start> {
    let start = |line: &String| {
        let words: Vec<&str> = line.strip_prefix("start ")?.split(' ').collect();
        Some(Start {
            who: words[0].to_owned(),
            at: Duration::from_micros(words[1].parse().ok()?),
            token: words[3].parse().ok()?,
            slot: words[4].parse().ok()?,
            is_shared: words[5] == "shared",
        })
    };
    log.iter().filter_map(start).collect()
}

/// Returns the complaints about commands that waited for the end of another and have no higher token. Commands in slots
/// may run together, so those of one slot only differ: a claim may take the slot of one that arrived after it. On Redlock,
/// two nodes can give the same highest token to two claims in different slots.
pub(crate) fn tokens_that_fall(starts: &[Start]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, later) in starts.iter().enumerate() {
        for earlier in &starts[..at] {
            let differ = earlier.token != later.token || earlier.slot != later.slot;
            let slots = earlier.slot > 0 && later.slot > 0 && differ;
            let together = slots || (earlier.is_shared && later.is_shared);
            if !together && earlier.token >= later.token {
                found.push(format!(
                    "token: {} had {}, and after it {} had {}",
                    earlier.who, earlier.token, later.who, later.token
                ));
            }
        }
    }
    found
}

impl Seen {
    pub(crate) fn starts(&self) -> Vec<Start> {
        starts(&self.log)
    }

    pub(crate) fn start(&self, who: &str) -> Option<Duration> {
        self.starts().into_iter().find(|start| start.who == who).map(|start| start.at)
    }

    /// Returns the first end of that command.
    pub(crate) fn end(&self, who: &str) -> Option<Duration> {
        let line = self.log.iter().find_map(|line| line.strip_prefix(&format!("end {who} ")))?;
        line.parse().ok().map(Duration::from_micros)
    }

    /// Returns the end of the command that began so.
    pub(crate) fn end_after(&self, start: &Start) -> Option<Duration> {
        let ends = self.log.iter().filter_map(|line| line.strip_prefix(&format!("end {} ", start.who)));
        let mut ends = ends.filter_map(|time| time.parse().ok().map(Duration::from_micros));
        ends.find(|end| *end > start.at)
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.strike.filter(|_| self.met.is_some()).map(|strike| strike.fault)
    }

    pub(crate) fn is_outage(&self) -> bool {
        is_outage(self.service, self.strike.filter(|_| self.met.is_some()))
    }

    /// Returns all complaints.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.exclusion(&mut found);
        found.extend(tokens_that_fall(&self.starts()));
        // Leases prove nothing if the machine stood still.
        if self.stood_still.is_some() {
            return found;
        }
        self.order(&mut found);
        match &self.claim {
            None => found.push("no end: the claim's dlock".to_owned()),
            Some(claim) => {
                self.status(claim, &mut found);
                self.times(claim, &mut found);
                self.next_ones(claim, &mut found);
            }
        }
        self.others(&mut found);
        self.leases(&mut found);
        if !self.remains.is_empty() {
            found.push(format!("left: {}", self.remains.join(", ")));
        }
        found
    }

    fn exclusion(&self, found: &mut Vec<String>) {
        found.extend(overlaps(&self.log));
        for start in self.starts() {
            let has_slot = match self.shape.company {
                Company::Queue => false,
                Company::QueueForSlot => true,
                Company::Rival => start.who == "claim",
            };
            let slots = if has_slot { 1..=2 } else { 0..=0 };
            if !slots.contains(&start.slot) {
                found.push(format!("slot: {} has {}", start.who, start.slot));
            }
            let may_again = self.shape.stands_again() && start.who == "claim";
            if !may_again && self.starts().iter().filter(|other| other.who == start.who).count() > 1 {
                found.push(format!("started twice: {}", start.who));
            }
        }
    }

    /// No claim overtakes another, unless an entry expired.
    fn order(&self, found: &mut Vec<String>) {
        if !self.service.kind.has_queue() || self.is_outage() {
            return;
        }
        if let (true, Some(claim), Some(behind)) =
            (self.was_queued, self.start("claim"), self.start("behind"))
            && behind < claim
        {
            found.push("order: the one behind overtook the claim".to_owned());
        }
        if !self.was_queued {
            found.push("order: the claim was not in the queue within a ttl".to_owned());
        }
    }

    /// The claim ends in time.
    fn times(&self, claim: &Ended, found: &mut Vec<String>) {
        let delay = self.fault().map_or(Duration::ZERO, Fault::delay);
        // Until its command starts: the news of the hold may be lost, and then comes with the next renewal.
        let start = if self.is_outage() { self.released + WAIT } else { self.released + TTL / 2 + delay };
        let release = match (self.is_outage(), self.shape.is_for_script()) {
            (true, true) => SCRIPTS_RELEASE,
            (true, false) => RELEASE,
            (false, _) => TTL / 2 + delay,
        };
        let mut latest = start + WORK + release + SOON;
        if !self.service.kind.has_queue() {
            // The waiter behind may go before it.
            latest += WORK_BEHIND;
        }
        if self.shape.verb == Verb::Detach {
            latest += TTL;
        }
        if self.shape.stands_again() {
            // The others run between its terms, and a lost message may be lost twice.
            latest += if self.is_outage() { WAIT * 2 } else { TTL + PAUSE + release };
        }
        if claim.at > latest {
            found.push(format!(
                "slow: the claim's dlock ended {:?} too late",
                claim.at.saturating_sub(latest)
            ));
        }
    }

    /// Returns whether a request may be executed after its run: it may create an entry, which expires with its lease.
    pub(crate) fn may_come_late(&self) -> bool {
        self.fault().is_some_and(Fault::comes_late)
    }

    /// The waiter behind and the newcomer run soon.
    fn next_ones(&self, claim: &Ended, found: &mut Vec<String>) {
        let certain = has_left(claim) && !self.is_outage() && !self.may_come_late();
        let mut within = SOON + if certain { Duration::ZERO } else { TTL + self.service.adds_to_ttl() };
        // A waiter of MySQL is woken by the end of a session. If the claim's session broke, its next renewal counts.
        if self.service.kind.name == "mysql" && self.fault() == Some(Fault::Lost) {
            within += TTL_OF_OTHERS / 3;
        }
        let mut free = claim.at.max(self.released);
        if self.shape.stands_again() {
            // The waiter behind runs between the two terms, after the first. A delay of it is a complaint of another
            // kind.
            free = self.end("claim").unwrap_or(free).max(self.released);
            within += TTL / 2 + self.fault().map_or(Duration::ZERO, Fault::delay);
        }
        let next: &[_] =
            if self.shape.company == Company::Rival { &["newcomer"] } else { &["behind", "newcomer"] };
        for who in next.iter().copied() {
            if who == "newcomer" {
                free = free.max(self.came);
            }
            match self.start(who) {
                Some(start) if start > free + within => {
                    found.push(format!(
                        "comes back: {who} had to wait {:?} when all was over",
                        start.saturating_sub(free)
                    ));
                }
                Some(_) => {}
                None => found.push(format!("stuck: {who} never ran")),
            }
            free = free.max(self.end(who).unwrap_or_default());
        }
    }

    fn others(&self, found: &mut Vec<String>) {
        for (who, ended) in &self.others {
            match ended {
                Some(ended) if ended.code == Some(0) => {}
                // One of both is enough.
                Some(ended)
                    if *who == "rival" && ended.code == Some(REFUSED) && self.start("claim").is_some() => {}
                Some(ended) => {
                    found.push(format!("{who}: ended with {:?}: {}", ended.code, ended.said.trim()));
                }
                None => found.push(format!("no end: {who}")),
            }
        }
    }

    /// Returns the messages of the claim.
    pub(crate) fn passed(&self) -> Vec<String> {
        let mut passed = Vec::new();
        for (way, messages) in ["request", "answer"].iter().zip(&self.messages) {
            passed.extend(messages.iter().enumerate().map(|(at, what)| format!("{way} {}: {what}", at + 1)));
        }
        passed
    }

    /// Returns all observations, for a closer look.
    pub(crate) fn facts(&self) -> Vec<String> {
        let mut facts = vec![format!("met: {:?}", self.met)];
        facts.extend(self.stood_still.map(|length| format!("the machine stood still for {length:?}")));
        facts.extend(self.log.iter().cloned());
        facts.push(format!(
            "queued {}, released {:?}, the newcomer came {:?}",
            self.was_queued, self.released, self.came
        ));
        facts.push(format!("claim: {:?}", self.claim));
        facts.extend(self.others.iter().map(|(who, ended)| format!("{who}: {ended:?}")));
        facts
    }
}
