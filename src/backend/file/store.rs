//! The operations of the queues.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::slice::from_ref;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use super::append::append;
use super::commit::{change, immovable, remove};
use super::config::{self, FileConfig};
use super::contents;
use super::directory::Directory;
use super::events::Events;
use super::examine;
use super::fault::{BACKEND, is_of_others};
use super::inspect;
use super::seat::Seat;
use super::surroundings;
use super::view;
use crate::backend::claim_state::POLL;
use crate::backend::{Capabilities, Examination, ServiceClient};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, LockName, Mode, Moment, Request};
use crate::net::fault::FaultResult;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// Queues in one directory of this host.
#[derive(Debug)]
pub(super) struct FileStore {
    config: FileConfig,
    /// The directory, once it was needed. Entering creates it if it is missing; looking does not.
    directory: OnceLock<Arc<Directory>>,
    /// The claims of this process.
    seats: Mutex<HashMap<ClaimId, Seat>>,
    /// The events of the queues that this process observes.
    events: Mutex<HashMap<LockName, Arc<Events>>>,
}

fn answer(queues: Vec<Queue>, note: Option<Note>, sent: Moment) -> Answer {
    Answer { queues, note, sent, seen: 0 }
}

impl FileStore {
    /// Creates the store of the directory that `config` names. The first call that needs the directory opens it and
    /// checks whether locks may live in it.
    pub(super) fn open(config: &FileConfig) -> Self {
        let config = config.clone();
        Self { config, directory: OnceLock::new(), seats: Mutex::default(), events: Mutex::default() }
    }

    /// Returns the directory; creates it if it is missing. All callers get the same error for an unsuitable one.
    pub(super) fn made(&self) -> FaultResult<&Arc<Directory>> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory);
        }
        let opened = config::open(&self.config);
        let opened = opened.map_err(|fault| fault.during(BACKEND, "use the lock directory", None))?;
        Ok(self.directory.get_or_init(|| Arc::new(opened)))
    }

    /// Returns the directory if anything is at its path, even if that is a dangling link.
    fn found(&self) -> FaultResult<Option<&Arc<Directory>>> {
        let found = || self.config.path().symlink_metadata();
        let is_missing = || found().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if self.directory.get().is_none() && is_missing() {
            return Ok(None);
        }
        self.made().map(Some)
    }

    fn with_seat<T>(
        &self,
        id: ClaimId,
        act: impl FnOnce(&mut Seat) -> FaultResult<T>,
    ) -> FaultResult<Option<T>> {
        locked(&self.seats).get_mut(&id).map(act).transpose()
    }

    /// Reads the queues of an own claim, and takes its lock files if it is its turn.
    async fn look(&self, own: &Own, deadline: Moment) -> FaultResult<Answer> {
        let sent = clock::now();
        // The files of a hold are looked at also if its queue cannot be read.
        let looked = self.with_seat(own.id, |seat| Ok((seat.queues(), seat.loss(true)?)))?;
        let (files, lost) = looked.unwrap_or_default();
        if lost.is_some() {
            return Ok(answer(Vec::new(), lost.map(Note::Forgotten), sent));
        }
        let mut queues = contents::read(&files, deadline).await?;
        let looked = self.with_seat(own.id, |seat| view::look(seat, &mut queues))?;
        let (queues, note) = looked.unwrap_or_default();
        Ok(answer(queues, note, sent))
    }

    /// Completes with a change of what is watched.
    async fn follow(&self, watched: Watched<'_>) -> FaultResult<()> {
        let name = match watched {
            Watched::Queue(name) => name,
            Watched::Claim { own, on } => {
                if let Some(sign) = self.with_seat(own.id, |seat| seat.sign(on))?.flatten() {
                    sign.await;
                }
                return Ok(());
            }
        };
        let Some(directory) = self.found()? else {
            Clock::Boot.sleep_until(clock::now() + POLL).await;
            return Ok(());
        };
        let events = locked(&self.events).get(name).cloned();
        if let Some(events) = events {
            events.next().await;
        } else {
            // It may have changed before.
            locked(&self.events).insert(name.clone(), Arc::new(Events::of_queue(directory, name)?));
        }
        Ok(())
    }

    async fn leave(&self, id: ClaimId, held_for: Option<Duration>, deadline: Moment) -> FaultResult<()> {
        let looked = |seat: &mut Seat| Ok((seat.queues(), seat.is_followed(), seat.is_removed_by_the_next()));
        let Some((files, is_followed, is_removed)) = self.with_seat(id, looked)? else { return Ok(()) };
        if is_followed {
            // The task that followed the claim ends, and closes its FIFO.
            tokio::task::yield_now().await;
        }
        let mut recorded = Ok(());
        if is_removed && held_for.is_some() {
            for file in &files {
                recorded = recorded.and(file.record_success(held_for, deadline).await);
            }
        }
        let mut queues = if is_removed { Ok(Vec::new()) } else { contents::read(&files, deadline).await };
        let Some(seat) = locked(&self.seats).remove(&id) else { return Ok(()) };
        // If they cannot be read, the entries stay: the released locks and the closed FIFO say enough.
        let left = match &mut queues {
            Ok(queues) => seat.leave(queues, held_for),
            Err(fault) => Err(fault.clone()),
        };
        seat.end(queues.ok());
        recorded.and(left)
    }
}

impl ServiceClient for FileStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { leased: false, abandoned_bound: Duration::ZERO, ..Capabilities::of(BACKEND) }
    }

    fn identity(&self) -> String {
        // If the directory cannot be used nothing is held, and the first request reports why.
        let Ok(directory) = self.made() else { return format!("file:{}", self.place()) };
        let (device, inode) = directory.identity;
        let prefix = directory.naming.prefix.as_deref();
        format!("file:{device}:{inode}{}", prefix.map(|p| format!(":{p}")).unwrap_or_default())
    }

    fn place(&self) -> String {
        self.config.path().display().to_string()
    }

    fn remark(&self) -> String {
        let path = self.config.path();
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let private = surroundings::private(&path).map(|above| format!(" in a private {}", above.display()));
        let last = if matches!(self.found(), Ok(None)) {
            ", which does not exist yet"
        } else if surroundings::swept(&path).is_some_and(|place| place != surroundings::AGED) {
            ", where old files are removed"
        } else {
            ""
        };
        private.unwrap_or_default() + last
    }
}

#[async_trait]
impl Store for FileStore {
    /// A caller without a state is shown the present one.
    fn reports_changes(&self) -> bool {
        false
    }

    /// Each look takes the lock files if it may.
    fn hold_is_a_step(&self, _: Mode, _: bool) -> bool {
        false
    }

    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        let begun = clock::now();
        let (own, seat, queues) = append(self.made()?, request, deadline).await?;
        locked(&self.seats).insert(own.id, seat);
        Ok((own, answer(queues, None, begun)))
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        if let Extent::Needed(own) = extent {
            return self.look(own, deadline).await;
        }
        let (sent, mut queues) = (clock::now(), Vec::new());
        for name in names {
            // An observer would take its own look at the lock file for news.
            let probe = !locked(&self.events).contains_key(name);
            queues.push(match self.found()? {
                Some(directory) => view::whole(directory, name, probe, deadline).await?,
                None => Queue { name: name.clone(), items: Vec::new() },
            });
        }
        Ok(answer(queues, None, sent))
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let (mut done, sent) = (true, clock::now());
        let success = steps.iter().find_map(|step| match step {
            Step::Success { held_for } => Some(*held_for),
            _ => None,
        });
        for step in steps {
            let Some(directory) = self.found()? else { continue };
            match step {
                Step::Remove { id, names, note, .. } => {
                    if note.is_none() {
                        // An attempt to enter that failed or was dropped may have left it open here.
                        self.leave(*id, success, deadline).await?;
                    }
                    if own.is_none_or(|own| own.id != *id) {
                        let own = own.into_iter().flat_map(Own::entries);
                        let when: Vec<_> = when.iter().cloned().chain(own).collect();
                        let mut queues = contents::open(directory, names, true, deadline).await?;
                        done &= remove(&mut queues, *id, note.as_ref(), &when)?;
                    }
                }
                Step::RemoveForeign(name, _) => return Err(immovable(directory, name)?),
                Step::Change(name, item, to) => {
                    let mut queues = contents::open(directory, from_ref(name), true, deadline).await?;
                    done &= queues.first_mut().map_or(Ok(false), |queue| change(queue, item, to))?;
                }
                Step::Hold { .. } | Step::Success { .. } => {}
            }
        }
        Ok((done, answer(Vec::new(), None, sent)))
    }

    /// Nothing expires. Looks at the files, since others may have removed them.
    async fn renew(&self, own: &Own, _: bool, _: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let sent = clock::now();
        if !matches!(self.with_seat(own.id, |seat| seat.loss(false))?, Some(None)) {
            return Ok(None);
        }
        Ok(Some((sent, answer(Vec::new(), None, sent))))
    }

    async fn changed(&self, watched: Watched<'_>, _: Seen, mut until: Moment) -> FaultResult<()> {
        // Another process that has the FIFO of a target open for writing conceals its end.
        if let Watched::Claim { own, on: [_, ..] } = watched {
            until = until.min(clock::now() + own.ttl / 3);
        }
        Clock::Boot.by(until, self.follow(watched)).await.unwrap_or(Ok(()))
    }

    async fn why_gone(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        Ok(self.look(own, deadline).await?.note.or(Some(Note::Evicted(None))))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let Some(directory) = self.found()? else { return Ok(Vec::new()) };
        let mut queues = Vec::new();
        for name in inspect::names(directory)?.iter().filter(|name| name.as_str().starts_with(prefix)) {
            queues.push(match view::whole(directory, name, false, deadline).await {
                // The other locks are listed, and of this one what the kernel shows.
                Err(fault) if is_of_others(&fault) => view::outside(directory, name)?,
                whole => whole?,
            });
        }
        Ok(queues)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let Some(directory) = self.found()? else { return Ok(None) };
        inspect::last_success(directory, name, deadline).await
    }

    fn abandon(&self, id: ClaimId) {
        let seat = locked(&self.seats).remove(&id);
        drop(seat);
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        examine::examine(self.found()?, &self.config.path(), deadline).await
    }

    fn anchors(&self, id: ClaimId) -> FaultResult<Vec<OwnedFd>> {
        Ok(self.with_seat(id, |seat| seat.anchors())?.unwrap_or_default())
    }
}
