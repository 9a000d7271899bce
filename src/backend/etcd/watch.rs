//! Streams of watches.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Event, EventType, WatchFilterType, WatchOptions, WatchResponse, WatchStream};

use super::dial::Connection;
use super::keys::Layout;
use super::view::{Claimed, bytes};
use super::wire::Wire;
use crate::clock::{self, Clock};
use crate::queue::store::{Seen, Watched};

/// The time limit for opening a stream.
const OPEN: Duration = Duration::from_secs(5);
/// The pause after a stream has failed, because the next one may fail at once, too.
const PAUSE: Duration = Duration::from_millis(100);

/// Keys and their changes that are news.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    key: Vec<u8>,
    /// The end of the range, if it is one.
    end: Option<Vec<u8>>,
    /// The only kind of changes.
    only: Option<EventType>,
}

/// An open stream.
pub(super) struct Stream {
    connection: Arc<Connection>,
    events: WatchStream,
    spans: Vec<Span>,
}

impl Span {
    fn end_of(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), end: None, only: Some(EventType::Delete) }
    }

    fn write_of(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), end: None, only: Some(EventType::Put) }
    }

    fn all((key, end): (String, String)) -> Self {
        Self { key: key.into(), end: Some(end.into()), only: None }
    }

    fn options(&self, revision: i64) -> WatchOptions {
        let options = WatchOptions::new().with_start_revision(revision);
        let options = match self.only {
            Some(EventType::Put) => options.with_filters([WatchFilterType::NoDelete]),
            Some(EventType::Delete) => options.with_filters([WatchFilterType::NoPut]),
            None => options,
        };
        match &self.end {
            Some(end) => options.with_range(end.clone()),
            None => options,
        }
    }

    fn concerns(&self, event: &Event, seen: i64) -> bool {
        let within = |key: &[u8]| match &self.end {
            Some(end) => self.key.as_slice() <= key && key < end.as_slice(),
            None => self.key == key,
        };
        let is_news = event.kv().is_some_and(|kv| kv.mod_revision() > seen && within(kv.key()));
        is_news && self.only.is_none_or(|only| only == event.event_type())
    }
}

/// Returns the spans of what is watched.
pub(super) fn spans(layout: &Layout, watched: Watched<'_>) -> Vec<Span> {
    match watched {
        Watched::Queue(name) => {
            let queue = layout.queue(name);
            vec![Span::all(queue.entries()), Span::all(queue.beside())]
        }
        Watched::Claim { own, on } => {
            let claimed = Claimed::of(layout, own);
            let mut spans = vec![Span::write_of(layout.note(claimed.lease))];
            for target in on {
                let key = bytes(&target.key);
                if target.or_holds {
                    spans.push(Span::write_of(claimed.queues[target.name].hold_of(&key)));
                }
                spans.push(Span::end_of(key));
            }
            spans.extend(claimed.queues.iter().map(|queue| Span::end_of(claimed.entry(queue))));
            spans
        }
    }
}

/// Completes at a change of `spans` after `seen`, or a moment after `stream` has failed. Cancel-safe.
pub(super) async fn changed(wire: &Wire, stream: &mut Option<Stream>, spans: &[Span], seen: Seen) {
    let seen = seen.cast_signed();
    if stream.is_none() {
        *stream = Box::pin(open(wire, spans, seen + 1)).await;
    }
    if let Some(open) = stream {
        let refused = match open.news(wire, spans, seen).await {
            Ok(()) => return,
            Err(refused) => refused,
        };
        let Some(Stream { connection, .. }) = stream.take() else { return };
        match refused {
            Some(message) => renew_token(&connection, &message).await,
            None => {
                wire.link.give_up(&connection);
            }
        }
    }
    Clock::Boot.sleep_until(clock::now() + PAUSE).await;
}

/// Opens a stream with the first of `spans`; the server opens it with the first one.
async fn open(wire: &Wire, spans: &[Span], revision: i64) -> Option<Stream> {
    let connection = wire.ready(clock::now() + OPEN).await.ok()?;
    let first = spans.first()?;
    let mut client = connection.client.clone();
    let opening = client.watch(first.key.clone(), Some(first.options(revision)));
    let opened = tokio::select! {
        opened = Clock::Boot.by(clock::now() + OPEN, opening) => opened,
        () = wire.link.given_up(&connection) => None,
    };
    if let Some(Ok(events)) = opened {
        return Some(Stream { connection, events, spans: vec![first.clone()] });
    }
    wire.link.give_up(&connection);
    None
}

impl Stream {
    /// Completes at a change of `spans` after `seen`. Errors: the stream has failed, with the server's refusal of a
    /// watch if there is one. Cancel-safe.
    async fn news(&mut self, wire: &Wire, spans: &[Span], seen: i64) -> Result<(), Option<WatchResponse>> {
        for span in spans {
            if !self.spans.contains(span) {
                let added = self.events.watch(span.key.clone(), Some(span.options(seen + 1))).await;
                added.map_err(|_| None)?;
                self.spans.push(span.clone());
            }
        }
        loop {
            let message = tokio::select! {
                message = self.events.message() => message,
                () = wire.link.given_up(&self.connection) => return Err(None),
            };
            let message = message.ok().flatten().ok_or(None)?;
            if message.canceled() {
                return Err(Some(message));
            }
            let is_news = |event: &Event| spans.iter().any(|span| span.concerns(event, seen));
            if message.events().iter().any(is_news) {
                return Ok(());
            }
        }
    }
}

/// Renews the login token after a watch was refused for it: other requests do not notice.
async fn renew_token(connection: &Connection, message: &WatchResponse) {
    if message.cancel_reason().contains("auth") || message.cancel_reason().contains("permission") {
        // If this fails, the next request reports the reason.
        let _ = Clock::Boot.by(clock::now() + OPEN, connection.client.refresh_token()).await;
    }
}
